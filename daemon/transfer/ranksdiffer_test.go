package transfer_test

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestRanksWithBlocksOfTheirOwn: one list cannot name the blocks of ranks that cut a group's tokens in different ways, even if it has the right
// length for each. Cut to a piece of an offer, it would be right for one of them, and the bytes of the others would go to wrong blocks.
func TestRanksWithBlocksOfTheirOwn(t *testing.T) {
	paged := layout.View{Region: 1, NumBlocks: 8, BlockStride: 64, TokenStride: 1, HeadStride: 1, ContentBytes: 1, Kind: layout.Paged, BlockSize: 16, Heads: 1, TotalHeads: 1, Part: "kv"}
	longer, opaque := paged, layout.View{Region: 1, NumBlocks: 8, BlockStride: 64, ContentBytes: 1, Kind: layout.Opaque, Part: "kv"}
	longer.BlockSize = 24
	for _, c := range []struct {
		name  string
		other layout.View
		want  string // "": it is accepted
	}{
		{"alike", paged, ""},
		{"of other sizes", longer, "blocks of group 0 are of 16 tokens at some ranks and of 24 at rank 1"},
		{"of other kinds", opaque, "group 0 is of kind 1 at some ranks and 2 at rank 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
			m.Step(1, transfer.SessionOpened{Session: 9, Engine: "e", Instance: "i", Role: transfer.Scheduler, Credits: 100})
			for i, v := range []layout.View{paged, c.other} {
				l, err := layout.New([]layout.View{v}, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				id := transfer.SessionID(i + 1)
				m.Step(1, transfer.SessionOpened{Session: id, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: uint32(i), TPWorld: 2, Credits: 100})
				m.Step(1, transfer.LayoutSet{Session: id, Layout: l})
			}
			blocks := []layout.BlockList{{FirstToken: 20, NTokens: 20, IDs: []uint32{5, 6}}} // blocks 1 and 2 of 16 tokens, or 0 and 1 of 24
			for _, op := range []transfer.Op{
				&transfer.OfferOp{Key: []byte("o"), Token: anyToken, Blocks: []layout.BlockList{{FirstToken: 20, NTokens: 20, IDs: []uint32{1, 2}}}},
				&transfer.TakeOp{Key: []byte("k"), Token: anyToken, TakeID: 1, LayerSlot: transfer.NoSlot, Blocks: blocks},
			} {
				var end transfer.Complete
				for _, e := range m.Step(1, transfer.Submit{Session: 9, UserData: 1, Op: op}) {
					if c, ok := e.(transfer.Complete); ok && c.Session == 9 {
						end = c
					}
				}
				if c.want == "" && end.Session != 0 || c.want != "" && (end.Reason != transfer.Invalid || !strings.Contains(end.Text, c.want)) {
					t.Errorf("%T: %+v, want it refused with %q", op, end, c.want)
				}
				m.Step(1, transfer.Submit{Session: 9, UserData: 2, Op: &transfer.CancelOp{Target: 1}})
			}
		})
	}
}
