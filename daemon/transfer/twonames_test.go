package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestATakeUnderTheNameOfAGet: a mad peer may ask for an offer under the name of a get that has found an item. The item goes back all the same when
// its time is over, and the get is counted no more.
func TestATakeUnderTheNameOfAGet(t *testing.T) {
	a := newAsker(t, 0)
	a.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
	a.step(transfer.LayoutSet{Session: 1, Layout: arena(t, 64)})
	a.step(transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindOwn, Name: "n", Capacity: 1 << 14}})
	a.step(transfer.Submit{Session: 1, UserData: 2, Op: &transfer.PutOp{Target: 1, Form: transfer.MatchAny, Bytes: 256, Blocks: blocksOf(0, 256)}})
	seek := &transfer.MsgSeek{Xfer: 7, Bind: 1, Buffer: true, Name: "n", Match: transfer.MatchAny, Room: 256, Deadline: transfer.Second}
	a.asks(seek)
	a.asks(takeOf(7, oneRank(t)))
	for range 60 {
		a.later(transfer.Second)
	}
	for _, use := range a.m.PeerUses() {
		if use.Gets+use.Takes > 0 {
			t.Errorf("nothing is under way, and this is used: %+v", use)
		}
	}
	again := *seek
	again.Xfer, again.Bind = 8, 2
	a.asks(&again)
	for _, msg := range a.said {
		if _, ok := msg.(*transfer.MsgFound); ok {
			return
		}
	}
	t.Errorf("the next get hears %+v, want that it has found the item", a.said)
}
