package driver

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// oneBlock is a rank of one small block, and that block.
func oneBlock(t *testing.T) ([]transfer.RankLayout, []layout.BlockList) {
	t.Helper()
	l, err := layout.New([]layout.View{{
		Region: 1, NumBlocks: 1, BlockStride: 16, TokenStride: 1, HeadStride: 1, ContentBytes: 1, Kind: layout.Paged, BlockSize: 16, Heads: 1, TotalHeads: 1, Part: "kv",
	}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return []transfer.RankLayout{{Layout: l}}, []layout.BlockList{{NTokens: 16, IDs: []uint32{0}}}
}

// TestALatePlanIsForNobody: what a worker planned for a transfer that is over leaves nothing behind.
func TestALatePlanIsForNobody(t *testing.T) {
	r := newRig(t, func(c *Config) { c.PlanInline = 0 })
	rank, blocks := oneBlock(t)
	leg := func(x transfer.XferID) transfer.Leg { return transfer.Leg{Xfer: x, End: transfer.Consumer} }
	do := func(f func()) {
		t.Helper()
		if err := r.Do(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	do(func() { // the worker's answers come after this
		for x := range transfer.XferID(2) {
			r.makePlan(transfer.MakePlan{Leg: leg(x), Producer: rank, Consumer: rank, Src: blocks, Dst: blocks})
		}
		r.execute(transfer.Forget{Leg: leg(0)})
	})
	for planned := false; !planned; { // one worker: the first is planned by then
		do(func() { g := r.legs[leg(1)]; planned = g != nil && g.first != nil })
	}
	do(func() {
		if len(r.legs) != 1 {
			t.Errorf("%d legs, want that of the second alone", len(r.legs))
		}
	})
}

// TestManyViewsAreMuchToPlan: they take much longer than block ids do.
func TestManyViewsAreMuchToPlan(t *testing.T) {
	l, err := layout.New([]layout.View{
		{Region: 1, NumBlocks: 1, BlockStride: 16, TokenStride: 1, HeadStride: 1, ContentBytes: 1, Kind: layout.Paged, BlockSize: 16, Heads: 1, TotalHeads: 1, Part: "k"},
		{Region: 1, Base: 16, NumBlocks: 1, BlockStride: 16, TokenStride: 1, HeadStride: 1, ContentBytes: 1, Kind: layout.Paged, BlockSize: 16, Heads: 1, TotalHeads: 1, Part: "v"},
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := transfer.MakePlan{
		Producer: []transfer.RankLayout{{Layout: l}, {Rank: 1, Layout: l}}, Consumer: []transfer.RankLayout{{Layout: l}},
		Src: []layout.BlockList{{IDs: []uint32{0}}}, Dst: []layout.BlockList{{IDs: []uint32{0}}},
	}
	if n := ids(e); n != 2+6*viewCost {
		t.Errorf("counted as %d, want 2 ids and 6 views", n)
	}
}

// TestMuchToPlanIsNotMovedAtOnce: everybody waits meanwhile.
func TestMuchToPlanIsNotMovedAtOnce(t *testing.T) {
	const most = 2 + 2*viewCost
	for inline, want := range map[int]bool{most: true, most - 1: false} {
		r := newRig(t, func(c *Config) { c.PlanInline = inline })
		from, to := r.session(1, "p", 1, 4096, 7), r.session(2, "c", 1, 4096, 0)
		l, err := layout.New([]layout.View{{
			Region: 1, NumBlocks: 1, BlockStride: 4096, TokenStride: 256, HeadStride: 256, ContentBytes: 256, Kind: layout.Paged, BlockSize: 16, Heads: 1, TotalHeads: 1, Part: "kv",
		}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		blocks := []layout.BlockList{{NTokens: 16, IDs: []uint32{0}}}
		if err := r.Do(t.Context(), func() {
			n, ok := r.tryMove(&transfer.MoveNow{
				Producer: []transfer.RankLayout{{Session: 1, Layout: l}}, Consumer: []transfer.RankLayout{{Session: 2, Layout: l}}, Src: blocks, Dst: blocks,
				Granted: transfer.Granted{Slot: transfer.NoSlot},
			})
			if ok != want || ok && n != 4096 || bytes.Equal(from, to) != want {
				t.Errorf("up to %d: moved %v, %d bytes", inline, ok, n)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheSizeOfAPlanIsSaid: the machine hears how much is kept, whatever made it much: here a block that a peer does not have, and that holds more
// tokens than all of a take's.
func TestTheSizeOfAPlanIsSaid(t *testing.T) {
	const n = 4096
	view := layout.View{Region: 1, NumBlocks: 2 * n, BlockStride: 1, TokenStride: 1, HeadStride: 1, ContentBytes: 1, Kind: layout.Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv"}
	small, err := layout.New([]layout.View{view}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	view.NumBlocks, view.BlockSize, view.BlockStride = 1, layout.MaxBlockSize, layout.MaxBlockSize
	large, err := layout.New([]layout.View{view}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	every2nd := make([]uint32, n)
	for i := range every2nd {
		every2nd[i] = uint32(2 * i)
	}
	d := New(Config{PlanInline: 1 << 20})
	d.makePlan(transfer.MakePlan{
		Leg: transfer.Leg{Peer: "b", End: transfer.Consumer}, Producer: []transfer.RankLayout{{Layout: large}}, Consumer: []transfer.RankLayout{{Layout: small}},
		Src: []layout.BlockList{{NTokens: layout.MaxBlockSize, IDs: []uint32{layout.NoBlock}}}, Dst: []layout.BlockList{{NTokens: n, IDs: every2nd}},
	})
	ev, ok := d.own[0].(transfer.Planned)
	if !ok || ev.Cause.Reason != transfer.OK || ev.Slices != 0 || len(ev.Missing) != n || ev.Size < 12*n {
		t.Errorf("%d missing runs of %d, %d slices, a size of %d bytes: %v", len(ev.Missing), n, ev.Slices, ev.Size, ev.Cause)
	}
}

// TestWhyAPlanFails: what the client did wrong is told from layouts that do not fit each other, and from too much.
func TestWhyAPlanFails(t *testing.T) {
	for err, want := range map[error]transfer.Reason{
		plan.ErrInvalid: transfer.Invalid, plan.ErrOverlap: transfer.Invalid, plan.ErrTooMuch: transfer.Quota, errors.New("another"): transfer.Incompatible,
	} {
		if c := cause(fmt.Errorf("plan: %w", err)); c.Reason != want || c.Text != "plan: "+err.Error() {
			t.Errorf("%v: %+v, want reason %d", err, c, want)
		}
	}
}
