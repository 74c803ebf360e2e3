package transfer_test

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// groupsOfLayers has a view for each pair of a layer and its group.
func groupsOfLayers(tb testing.TB, pairs ...[2]uint32) *layout.Layout {
	var views []layout.View
	for i, p := range pairs {
		views = append(views, layout.View{
			Region: 1, Base: uint64(i) << 20, NumBlocks: 64, BlockStride: 4096, TokenStride: 4096, HeadStride: 4096, ContentBytes: 4096, Layer: p[0], Group: p[1],
			Kind: layout.Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: []string{"k", "v"}[p[1]],
		})
	}
	l, err := layout.New(views, []layout.Field{{Key: "model", Value: "m"}}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// TestLayersOfTheGroupsThatATakeNames: a worker's take counts their layers and no others, since its library does; a scheduler's counts those of
// all its ranks. A slice comes for each layer that moves, in order.
func TestLayersOfTheGroupsThatATakeNames(t *testing.T) {
	apart := groupsOfLayers(t, [2]uint32{0, 0}, [2]uint32{1, 1}, [2]uint32{2, 0}, [2]uint32{3, 1})
	both := groupsOfLayers(t, [2]uint32{0, 0}, [2]uint32{0, 1}, [2]uint32{4, 0}, [2]uint32{7, 0}, [2]uint32{7, 1}) // layers 0 and 7 are of both groups
	for _, c := range []struct {
		name      string
		layout    *layout.Layout
		scheduler bool
		groups    []uint32
		moves     []uint32 // of which layers, as ordinals among all, slices come
		ready     []uint32 // after the grant, and after each slice
	}{
		{"of all groups", apart, false, []uint32{0, 1}, []uint32{0, 1, 2, 3}, []uint32{0, 1, 2, 3, 4}},
		{"of the first group", apart, false, []uint32{0}, []uint32{0, 2}, []uint32{0, 1, 2}},
		{"of the second group", apart, false, []uint32{1}, []uint32{1, 3}, []uint32{0, 1, 2}},
		{"of which one layer moves", apart, false, []uint32{1}, []uint32{3}, []uint32{1, 2}},
		{"of layers of both groups", both, false, []uint32{1}, []uint32{0, 2}, []uint32{0, 1, 2}},
		{"of no group", apart, false, nil, nil, []uint32{0}},
		{"a scheduler's", apart, true, []uint32{1}, []uint32{1, 3}, []uint32{1, 3, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTaker(t, 0)
			w.step(transfer.SessionOpened{Session: 2, Engine: "f", Role: transfer.Worker, Credits: 1000})
			w.step(transfer.LayoutSet{Session: 2, Layout: c.layout})
			by := transfer.SessionID(2)
			if c.scheduler {
				by = 3
				w.step(transfer.SessionOpened{Session: by, Engine: "f", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000})
			}
			w.says(layoutMsg(c.layout))
			var lists []layout.BlockList
			for _, g := range c.groups {
				lists = append(lists, layout.BlockList{Group: g, NTokens: 1, IDs: []uint32{5 + g}})
			}
			w.step(transfer.Submit{Session: by, UserData: 1, Op: &transfer.TakeOp{
				Key: []byte("k"), Token: anyToken, Peer: "b", TakeID: 1, LayerSlot: 3, Layered: true, Timeout: transfer.Second, Blocks: lists,
			}})
			if len(w.xfers) != 1 {
				t.Fatalf("the take was not asked for: %+v", w.ends)
			}
			x, n := w.xfers[0], uint32(len(c.moves))
			w.says(&transfer.MsgGrant{
				Xfer: x, Incarnation: 1, Engine: "p", Transport: "tcp", Last: true, Slices: n, Bytes: 4096 * uint64(n), Layered: true,
				Ranks: []transfer.RankRef{{Digest: c.layout.Digest()}}, Blocks: lists,
			})
			plan := transfer.Planned{Slices: n, Bytes: 4096 * uint64(n)}
			for i, l := range c.moves {
				plan.Marks = append(plan.Marks, transfer.Mark{First: uint32(i), DstLayer: l})
			}
			w.planned(x, 0, plan)
			ready := []uint32{w.layers}
			for i := range n {
				w.lands(x, 0, i)
				ready = append(ready, w.layers)
			}
			if !slices.Equal(ready, c.ready) {
				t.Errorf("after the grant, and after each slice, %v layers are said to be in place, want %v", ready, c.ready)
			}
		})
	}
}
