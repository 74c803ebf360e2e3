package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestWhatEndsAsThePeerIsReachedDoesNotBegin: two gets of one end wait for an address, which turns out to be this node's. The pipe has a
// receiver: the first is refused, with the whole end, and so the second has ended when its turn comes.
func TestWhatEndsAsThePeerIsReachedDoesNotBegin(t *testing.T) {
	e := newEnds(t, nil)
	e.open(1, send)
	e.open(2, recv)
	rx := e.open(3, &transfer.BindOp{Kind: transfer.BindRecv, Name: "p", Peer: "addr"})
	first, second := e.get(3, rx, 0, 0, 10), e.get(3, rx, 1, 2, 10)
	e.step(transfer.PeerUp{Node: "a", Epoch: 1, Hints: []string{"addr"}})
	for _, user := range []uint64{first, second, rx} {
		e.is(user, transfer.Failed, transfer.Busy, `pipe "p" has a receiver already`)
	}
	for s := transfer.SessionID(1); s <= 3; s++ {
		e.step(transfer.SessionClosed{Session: s, Cause: transfer.Cause{Reason: transfer.Closed, Text: "closed"}})
	}
	if s := e.m.Snapshot(); len(s.Pipes)+len(s.Sessions) > 0 {
		t.Errorf("all ends are closed, and left are %+v and %+v", s.Pipes, s.Sessions)
	}
}
