package transfer_test

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAMadPeersEndsPushOutNothingOfAnothers: b has all of a take when its channel is lost. Its word, over the next one, counts however much
// another peer has ended meanwhile, of what this node has never heard.
func TestAMadPeersEndsPushOutNothingOfAnothers(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	a.step(transfer.PeerUp{Node: "mad", Epoch: 2})
	l := oneRank(t)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	a.begins(1)
	leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: 1, End: transfer.Producer}
	a.step(transfer.Planned{Leg: leg, Slices: 1, Bytes: 1 << 20, Transport: "tcp"})
	offer := a.granted()
	a.asks(&transfer.MsgGo{Xfer: 1})
	a.step(transfer.SliceSent{Key: transfer.SliceKey{Leg: leg}})
	a.step(transfer.PeerDown{Node: "b", Epoch: 1, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "lost"}})
	a.step(transfer.PeerUp{Node: "b", Epoch: 3})
	done := transfer.PeerMsg{Node: "b", Epoch: 3, Msg: &transfer.MsgEnd{Xfer: 1, Status: transfer.Done, Incarnation: offer}}
	if a.step(done); len(a.said) > 0 {
		t.Fatalf("b was told %+v while its transfer is fenced", a.said)
	}
	for _, leg := range a.fences {
		a.step(transfer.Fenced{Leg: leg})
	}
	for x := range transfer.XferID(1<<16 + 1) {
		a.step(transfer.PeerMsg{Node: "mad", Epoch: 2, Msg: &transfer.MsgEnd{Xfer: 1000 + x, Status: transfer.WasCancelled}})
	}
	for _, e := range a.m.Step(a.now, done) {
		if c, ok := e.(transfer.Complete); ok && c.UserData == 50 && c.Status == transfer.Done {
			return
		}
	}
	t.Error("the offer is not taken, though b said so")
}

// TestEndsOfLostChannelsAreForgotten: after a while, since what came by such a channel comes no more, however long the take had.
func TestEndsOfLostChannelsAreForgotten(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(100)
	l := oneRank(t)
	const rounds = 50
	for x := transfer.XferID(1); x <= rounds; x++ {
		epoch := uint64(x)
		a.step(transfer.PeerMsg{Node: "b", Epoch: epoch, Msg: layoutMsg(l)})
		take := takeOf(x, l)
		take.Deadline = 3600 * transfer.Second
		a.step(transfer.PeerMsg{Node: "b", Epoch: epoch, Msg: take})
		a.step(transfer.Planned{Leg: transfer.Leg{Peer: "b", Epoch: epoch, Xfer: x, End: transfer.Producer}, Slices: 1, Bytes: 1 << 20, Transport: "tcp"})
		a.fences = nil
		a.step(transfer.PeerDown{Node: "b", Epoch: epoch, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "lost"}})
		for _, f := range a.fences {
			a.step(transfer.Fenced{Leg: f})
		}
		a.step(transfer.PeerUp{Node: "b", Epoch: epoch + 1})
	}
	if n := a.m.PastSize(); n != rounds {
		t.Fatalf("%d ends are remembered at first, want %d", n, rounds)
	}
	for range 12 {
		a.later(5 * transfer.Second)
	}
	if n := a.m.PastSize(); n > 0 {
		t.Errorf("a minute later %d ends of channels that are gone are remembered", n)
	}
}

// TestAPeersWordsAreNotKept: how a take ended is remembered for late copies of its question, and not the text in which its node said so.
func TestAPeersWordsAreNotKept(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	a.begins(1)
	a.asks(&transfer.MsgEnd{Xfer: 1, Status: transfer.WasCancelled, Cause: transfer.Cause{Reason: transfer.Cancelled, Text: "a long story"}})
	for _, leg := range a.fences {
		a.step(transfer.Fenced{Leg: leg})
	}
	a.asks(takeOf(1, l))
	if len(a.said) != 1 {
		t.Fatalf("b was told %+v", a.said)
	}
	if r, ok := a.said[0].(*transfer.MsgRefuse); !ok || r.Cause.Text != "this transfer has ended" {
		t.Errorf("b asked late, and was told %+v", a.said[0])
	}
}

// TestAnAbortIsNotSaidForAnHour: a consumer that does not answer is told more and more seldom that its take is over, and then no more,
// also when its deadline is far away. When it asks, it is told.
func TestAnAbortIsNotSaidForAnHour(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	msg := takeOf(1, l)
	msg.Deadline = 3600 * transfer.Second
	a.asks(msg)
	a.begins(1)
	a.step(transfer.Submit{Session: 1, UserData: 51, Op: &transfer.WithdrawOp{Target: 50}})
	var said []transfer.Time // after so long
	look := func() {
		for _, msg := range a.said {
			if _, ok := msg.(*transfer.MsgAbort); ok {
				said = append(said, a.now/transfer.Second)
			}
		}
	}
	for _, leg := range a.fences {
		a.step(transfer.Fenced{Leg: leg})
		look()
	}
	for range 60 {
		a.later(transfer.Second)
		look()
	}
	if want := []transfer.Time{0, 1, 3, 7}; !slices.Equal(said, want) {
		t.Errorf("the abort was said after %v seconds, want %v", said, want)
	}
	a.asks(msg)
	if len(a.said) != 1 {
		t.Fatalf("b was told %+v", a.said)
	}
	if r, ok := a.said[0].(*transfer.MsgRefuse); !ok || r.Retry != 0 {
		t.Errorf("b asked again, and was told %+v", a.said[0])
	}
}
