package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAnEndGetsTheItemsOfOneSender: node b says that the pipe was closed with nothing in it, in answer to the second of
// two gets, and the channel is lost before it answers the first. By the time of the next channel another sender may have
// the name. Its item 0 would be taken for the last that the first sender had sent.
func TestAnEndGetsTheItemsOfOneSender(t *testing.T) {
	x := newTwoGets(t)
	x.asks(&transfer.MsgSeekRefuse{Xfer: x.gets[1], Cause: transfer.Cause{Reason: transfer.Closed, Text: `pipe "p" was closed by its sender, and everything in it was received`}})
	x.step(transfer.PeerDown{Node: "b", Epoch: 1})
	x.step(transfer.PeerUp{Node: "b", Epoch: 2, Hints: []string{"b"}})
	if len(x.sought()) > 0 {
		t.Errorf("b was asked again: %+v", x.said)
	}
	if x.ends[2].Reason != transfer.PeerGone {
		t.Errorf("the first get ended with %+v, want that the sender may be gone", x.ends[2])
	}
}

// TestAnEndThatKnowsItsSenderAsksOn: the sender's name goes with each get, so that none other can answer.
func TestAnEndThatKnowsItsSenderAsksOn(t *testing.T) {
	x := newTwoGets(t)
	x.asks(&transfer.MsgSeekParked{Xfer: x.gets[0], Home: 7})
	x.asks(&transfer.MsgSeekRefuse{Xfer: x.gets[1], Cause: transfer.Cause{Reason: transfer.Closed, Text: `pipe "p" was closed by its sender after 1 item`}})
	x.step(transfer.PeerDown{Node: "b", Epoch: 1})
	x.step(transfer.PeerUp{Node: "b", Epoch: 2, Hints: []string{"b"}})
	if sought := x.sought(); len(sought) != 1 || sought[0].Home != 7 {
		t.Errorf("b was asked %+v, want once, for what is at home 7", x.said)
	}
}

// TestAnEndThatWasToldNothingAsksOn: it cannot have met a sender.
func TestAnEndThatWasToldNothingAsksOn(t *testing.T) {
	x := newTwoGets(t)
	x.asks(&transfer.MsgSeekRefuse{Xfer: x.gets[1], Cause: transfer.Cause{Reason: transfer.Quota, Text: "too much"}, Retry: transfer.Second})
	x.step(transfer.PeerDown{Node: "b", Epoch: 1})
	x.step(transfer.PeerUp{Node: "b", Epoch: 2, Hints: []string{"b"}})
	if sought := x.sought(); len(sought) != 2 {
		t.Errorf("b was asked %+v, want for both items", x.said)
	}
}

// twoGets is a machine with a receiving end of node b's pipe, which waits for two items.
type twoGets struct {
	*asker
	gets []transfer.XferID
	ends map[uint64]transfer.Complete
}

func newTwoGets(t *testing.T) *twoGets {
	x := &twoGets{asker: newAsker(t, 0), ends: map[uint64]transfer.Complete{}}
	x.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
	x.step(transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindRecv, Name: "p", Peer: "b"}})
	for seq := range uint64(2) {
		x.step(transfer.Submit{Session: 1, UserData: 2 + seq, Op: &transfer.GetOp{Target: 1, Match: transfer.MatchNext, Seq: seq, Timeout: 60 * transfer.Second}})
		for _, seek := range x.sought() {
			x.gets = append(x.gets, seek.Xfer)
		}
	}
	if len(x.gets) != 2 {
		t.Fatalf("b was asked for %d items, want 2", len(x.gets))
	}
	return x
}

func (x *twoGets) sought() (seeks []*transfer.MsgSeek) {
	for _, msg := range x.said {
		if seek, ok := msg.(*transfer.MsgSeek); ok {
			seeks = append(seeks, seek)
		}
	}
	return seeks
}

// step notes how operations end, too.
func (x *twoGets) step(ev transfer.Event) {
	x.said = nil
	for _, e := range x.m.Step(x.now, ev) {
		switch e := e.(type) {
		case transfer.Send:
			x.said = append(x.said, e.Msg)
		case transfer.Complete:
			x.ends[e.UserData] = e
		}
	}
}

func (x *twoGets) asks(msg transfer.Msg) { x.step(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: msg}) }
