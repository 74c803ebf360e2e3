package transfer_test

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestTokensBetweenPiecesAreMissing: a producer that leaves some out between two pieces has not sent the blocks into which they belong, and the
// take says so, although every slice of both pieces is in place.
func TestTokensBetweenPiecesAreMissing(t *testing.T) {
	w := newTaker(t, 0)
	w.step(transfer.Submit{Session: 1, UserData: 1, Op: &transfer.TakeOp{
		Key: []byte("k"), Token: anyToken, Peer: "b", TakeID: 1, LayerSlot: transfer.NoSlot, Timeout: transfer.Second, Blocks: someBlocks(20, 3),
	}})
	x := w.xfers[0]
	for seg, token := range []uint32{0, 2} {
		w.says(&transfer.MsgGrant{
			Xfer: x, Seg: uint32(seg), Incarnation: 1, Engine: "p", Transport: "tcp", Last: seg == 1, Slices: 1, Bytes: 4096,
			Ranks: []transfer.RankRef{{Digest: oneRank(t).Digest()}}, Blocks: []layout.BlockList{{FirstToken: token, NTokens: 1, IDs: []uint32{token}}},
		})
		w.planned(x, uint32(seg), transfer.Planned{Slices: 1, Bytes: 4096})
		w.lands(x, uint32(seg), 0)
	}
	w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: 2})
	w.fenced()
	want := []layout.Run{{First: 21, Count: 1}}
	if c, ended := w.ends[1]; !ended || c.Status != transfer.Failed || c.Reason != transfer.NotFound || !slices.Equal(c.Failed, want) {
		t.Errorf("the take ended %+v, want it to lack %v", c, want)
	}
}
