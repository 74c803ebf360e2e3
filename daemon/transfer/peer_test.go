package transfer_test

import (
	"fmt"
	"runtime"
	"testing"
	"weak"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// serve has the node ask for the offer, be sent one slice, and say that all is there: then the offer is over.
func (s site) serve() {
	s.tb.Helper()
	leg, born := s.part(1, "1", 7, 0, 1)
	s.says(&transfer.MsgGo{Xfer: 1})
	s.step(transfer.SliceSent{Key: transfer.SliceKey{Leg: leg}})
	if s.has(1, born) {
		s.tb.Fatal("the offer stands")
	}
	s.step(transfer.Fenced{Leg: leg})
}

func (s site) goes() {
	s.step(transfer.PeerDown{Node: s.node, Epoch: s.epoch, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "lost"}})
}

// TestNodesThatGoAreForgotten: they come and go under ever new names.
func TestNodesThatGoAreForgotten(t *testing.T) {
	a := newAsker(t, 0)
	for i := range 1000 {
		a.offers(1)
		n := a.site(fmt.Sprintf("n%d", i), uint64(i+2))
		n.serve()
		a.step(transfer.CreditsReturned{Session: 1, N: 1})
		n.goes()
		a.later(transfer.Second)
	}
	if peers, lanes := a.m.Peers(), a.m.Lanes(); peers > 50 || lanes > 50 {
		t.Errorf("a thousand nodes came and went, and %d are known, with %d lanes", peers, lanes)
	}
	for range 5 {
		a.later(10 * transfer.Second)
	}
	if peers, lanes := a.m.Peers(), a.m.Lanes(); peers != 1 || lanes != 0 {
		t.Errorf("one node is there, and %d are known, with %d lanes", peers, lanes)
	}
}

// TestANodeIsKnownWhileSomethingIsOpen: that was sent to it and may have arrived. Its word counts when it is back.
func TestANodeIsKnownWhileSomethingIsOpen(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	b := site{a, "b", 1}
	l := oneRank(t)
	b.says(layoutMsg(l))
	msg := takeOf(1, l)
	msg.Deadline = 50 * transfer.Second
	b.says(msg)
	leg, born := b.grants(1)
	b.says(&transfer.MsgGo{Xfer: 1})
	b.step(transfer.SliceSent{Key: transfer.SliceKey{Leg: leg}})
	b.goes()
	a.step(transfer.Fenced{Leg: leg})
	for range 4 {
		a.later(10 * transfer.Second)
	}
	if back := a.site("b", 2); back.has(1, born) {
		t.Error("b has all of it, and said so over its next channel; the offer is still there")
	}
}

// TestALaneKeepsNothingOfTheLastTake: neither its blocks nor the sessions that it was of.
func TestALaneKeepsNothingOfTheLastTake(t *testing.T) {
	b := offered(t, 2)
	take := func() weak.Pointer[transfer.MsgTake] {
		l := oneRank(t)
		b.says(layoutMsg(l))
		msg := takeOf(1, l)
		b.says(msg)
		leg, born := b.grants(1)
		b.says(&transfer.MsgGo{Xfer: 1})
		b.step(transfer.SliceSent{Key: transfer.SliceKey{Leg: leg}})
		b.has(1, born)
		b.step(transfer.Fenced{Leg: leg})
		return weak.Make(msg)
	}()
	b.later(transfer.Second) // the last step's effects are kept until the next
	runtime.GC()
	if take.Value() != nil {
		t.Error("the take is over, and what asked for it is still kept")
	}
	runtime.KeepAlive(b.m)
}

// TestTheEndOfAnEarlierChannelIsNoNews: what came over its successor goes on.
func TestTheEndOfAnEarlierChannelIsNoNews(t *testing.T) {
	a := newAsker(t, 0)
	a.site("b", 1)
	b := a.site("b", 2)
	b.asksFor(1, "f", "1", 7, 0, 1)
	b.waits(1)
	a.step(transfer.PeerDown{Node: "b", Epoch: 1, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "lost"}})
	a.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1000})
	a.step(transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
	a.step(transfer.Submit{Session: 1, UserData: 50, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Sealed: true, Blocks: someBlocks(0, 1)}})
	b.begins(1)
}
