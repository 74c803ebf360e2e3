package transfer_test

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAGrantSaysHowFarTheOfferReaches: up to and with its piece, also where that one adds nothing.
func TestAGrantSaysHowFarTheOfferReaches(t *testing.T) {
	a := newAsker(t, 0)
	a.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 100})
	a.step(transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
	a.step(transfer.Submit{Session: 1, UserData: 50, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Lease: 60 * transfer.Second, Blocks: someBlocks(0, 3)}})
	for i, more := range []layout.BlockList{{FirstToken: 3}, {FirstToken: 3, NTokens: 2, IDs: []uint32{4, 5}}} {
		a.step(transfer.Submit{Session: 1, UserData: 51, Op: &transfer.ExtendOp{Target: 50, Sealed: i == 1, Blocks: []layout.BlockList{more}}})
	}
	l := oneRank(t)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	var reach []uint32
	for seg := range uint32(3) {
		a.step(transfer.Planned{Leg: transfer.Leg{Peer: "b", Epoch: 1, Xfer: 1, End: transfer.Producer}, Seg: seg, Transport: "tcp"})
		for _, msg := range a.said {
			if g, ok := msg.(*transfer.MsgGrant); ok {
				reach = append(reach, g.Tokens)
			}
		}
	}
	if want := []uint32{3, 3, 5}; !slices.Equal(reach, want) {
		t.Errorf("the grants reach to %v, want %v", reach, want)
	}
}
