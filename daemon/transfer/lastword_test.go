package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// told is a machine with a receiving end of node b's pipe, which has just received an item and said so; b has not acknowledged it.
type told struct {
	*asker
	item  transfer.XferID
	epoch uint64 // of the last channel to b
}

func newTold(t *testing.T) *told {
	x := &told{asker: newAsker(t, 0), epoch: 1}
	x.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
	x.step(transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindRecv, Name: "p", Peer: "b"}})
	x.step(transfer.Submit{Session: 1, UserData: 2, Op: &transfer.GetOp{Target: 1, Match: transfer.MatchNext, Timeout: transfer.Second}})
	for _, msg := range x.said {
		if seek, ok := msg.(*transfer.MsgSeek); ok {
			x.item = seek.Xfer
		}
	}
	x.asks(&transfer.MsgFound{Xfer: x.item, Home: 7, Item: 8, Capacity: 1 << 14})
	if !x.says() {
		t.Fatalf("b was told %+v, want that its item is received", x.said)
	}
	return x
}

// says whether the last step told b that the item was received.
func (x *told) says() bool {
	for _, msg := range x.said {
		if end, ok := msg.(*transfer.MsgEnd); ok && end.Xfer == x.item && end.Status == transfer.Done {
			return true
		}
	}
	return false
}

func (x *told) loses() { x.step(transfer.PeerDown{Node: "b", Epoch: x.epoch}) }

func (x *told) meets() {
	x.epoch++
	x.step(transfer.PeerUp{Node: "b", Epoch: x.epoch, Hints: []string{"b"}})
}

func (x *told) closes() {
	x.step(transfer.Submit{Session: 1, UserData: 3, Op: &transfer.CancelOp{Target: 1}})
}

// waits lets the time pass as timers want it.
func (x *told) waits(seconds int) {
	for range seconds {
		x.later(transfer.Second)
	}
}

// TestWhatWasReceivedIsSaidAfterALongOutage: as long as its end is open, over whichever channel comes.
func TestWhatWasReceivedIsSaidAfterALongOutage(t *testing.T) {
	x := newTold(t)
	x.loses()
	x.waits(3600)
	if x.meets(); !x.says() {
		t.Error("b comes back after an hour, and is not told that its item was received")
	}
}

// TestWhatWasReceivedIsSaidByANodeThatStoodStill: which finds all its timers due at once.
func TestWhatWasReceivedIsSaidByANodeThatStoodStill(t *testing.T) {
	x := newTold(t)
	x.later(100 * transfer.Second)
	x.loses()
	if x.meets(); !x.says() {
		t.Error("b is not told that its item was received")
	}
}

// TestWhatWasReceivedIsNotSaidForEver: not to a node that does not listen, however often it comes, nor for an end that is closed.
func TestWhatWasReceivedIsNotSaidForEver(t *testing.T) {
	deaf := newTold(t)
	if deaf.waits(60); deaf.says() {
		t.Error("b, which is there and does not listen, is still told after a minute")
	}
	closed := newTold(t)
	closed.loses()
	closed.closes()
	closed.waits(60)
	if closed.meets(); closed.says() {
		t.Error("the end is closed, and b is told after a minute what it had received")
	}
	often := newTold(t)
	often.closes()
	for range 120 {
		often.loses()
		often.meets()
		often.later(transfer.Second / 2)
	}
	often.loses()
	if often.meets(); often.says() {
		t.Error("channels come and go, and b, which does not listen, is still told after a minute")
	}
}

// TestWhatWasReceivedIsSaidOverEachChannel: for three Lingers after its end was closed, however many channels came and went.
func TestWhatWasReceivedIsSaidOverEachChannel(t *testing.T) {
	for _, channels := range []int{0, 10} {
		x := newTold(t)
		x.closes()
		for range channels {
			x.loses()
			if x.meets(); !x.says() {
				t.Errorf("%d channels: b comes back at once, and is not told that its item was received", channels)
			}
			x.later(transfer.Second / 10)
		}
		x.loses()
		x.waits(29 - channels/10)
		x.later(9 * transfer.Second / 10)
		if x.meets(); !x.says() {
			t.Errorf("%d channels: b comes back after 29.9 seconds, and is not told that its item was received", channels)
		}
	}
}
