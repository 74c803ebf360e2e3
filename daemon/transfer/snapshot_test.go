package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestHoldsOfWhoWaits: what gets that wait for an item hold is told apart exactly, also where a list has positions without a block.
func TestHoldsOfWhoWaits(t *testing.T) {
	e := newEnds(t, nil)
	e.open(1, send)
	rx := e.open(2, recv)
	gap := blocksOf(0, 2*block)
	gap[0].IDs[0] = layout.NoBlock
	e.submit(2, &transfer.GetOp{Target: rx, Match: transfer.MatchNext, Room: 2 * block, Timeout: 1e9, Blocks: gap})
	e.submit(2, &transfer.GetOp{Target: rx, Match: transfer.MatchNext, Seq: 1, Room: 2 * block, Timeout: 1e9,
		Blocks: []layout.BlockList{{NTokens: 2 * block, IDs: layout.Adjacent(4, 2)}}})
	s := e.m.Snapshot()
	if s.Seeking != 2 || s.HoldsExclusive != 3 || s.HoldsSeeking != s.HoldsExclusive {
		t.Errorf("%d gets wait with %d of %d blocks that are held, want 2 with all 3", s.Seeking, s.HoldsSeeking, s.HoldsExclusive)
	}
}
