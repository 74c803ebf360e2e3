package transfer_test

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestNoLayerIsReadyUnheardOf: a grant that says nothing of layers ends a take layer by layer. Nothing would tell which layers its slices are
// of, and an engine that is told of a layer computes on it.
func TestNoLayerIsReadyUnheardOf(t *testing.T) {
	w := newTaker(t, 0)
	w.step(transfer.Submit{Session: 1, UserData: 1, Op: &transfer.TakeOp{
		Key: []byte("k"), Token: anyToken, Peer: "b", TakeID: 1, LayerSlot: 3, Layered: true, Timeout: transfer.Second, Blocks: someBlocks(20, 1),
	}})
	x := w.xfers[0]
	w.piece(x, 0, 2, true, nil) // not layered
	w.fenced()
	if w.layers > 0 {
		t.Errorf("%d layers are said to be in place, and no slice is", w.layers)
	}
	c, ended := w.ends[1]
	if !ended || c.Reason != transfer.Incompatible || !strings.Contains(c.Text, `node "b" grants segment 0 all at once to a take layer by layer`) {
		t.Errorf("the take: %+v", c)
	}
}
