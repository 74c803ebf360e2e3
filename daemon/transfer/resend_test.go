package transfer_test

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestASliceWaitsOnceToBeSentAgain: however often its consumer asks for it before it can be sent, and then by the latest attempt.
func TestASliceWaitsOnceToBeSentAgain(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	const n = 200
	a.step(transfer.Planned{Leg: transfer.Leg{Peer: "b", Epoch: 1, Xfer: 1, End: transfer.Producer}, Slices: n, Bytes: n << 20, Transport: "tcp"})
	var flying, again []transfer.SliceKey
	step := func(ev transfer.Event) {
		for _, e := range a.m.Step(a.now, ev) {
			if p, ok := e.(transfer.Post); ok {
				flying = append(flying, p.Keys...)
			}
		}
	}
	step(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgGo{Xfer: 1}})
	send := func() {
		k := flying[0]
		flying = flying[1:]
		if k.Attempt > 0 {
			again = append(again, k)
		}
		step(transfer.SliceSent{Key: k})
	}
	window := len(flying)
	for flying[window-1].Slice < n-2 { // one less than all: the producer has not said that everything was sent
		send()
	}
	const times = 30
	for attempt := range uint32(times) {
		msg := &transfer.MsgResend{Xfer: 1, Attempt: attempt + 1}
		for s := range uint32(100) {
			msg.Slices = append(msg.Slices, s)
		}
		step(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: msg})
	}
	for len(flying) > 0 {
		send()
	}
	seen := map[uint32]uint32{}
	for _, k := range again {
		if k.Attempt <= seen[k.Slice] {
			t.Errorf("slice %d was sent by attempt %d after %d", k.Slice, k.Attempt, seen[k.Slice])
		}
		seen[k.Slice] = k.Attempt
	}
	if len(seen) != 100 || len(again) > 100+window {
		t.Errorf("%d slices were sent again, %d times in all; want 100, once each but for what the window had room for", len(seen), len(again))
	}
	for s, attempt := range seen {
		if attempt != times {
			t.Errorf("slice %d was sent by attempt %d last, want %d", s, attempt, times)
		}
	}
}

// TestWhatWasNotSentIsNotSentAgain: a slice that is asked for before its turn comes when it may be read, once.
func TestWhatWasNotSentIsNotSentAgain(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	const n = 200
	a.step(transfer.Planned{Leg: transfer.Leg{Peer: "b", Epoch: 1, Xfer: 1, End: transfer.Producer}, Slices: n, Bytes: n << 20, Transport: "tcp"})
	var flying []transfer.SliceKey
	sent := map[uint32]int{}
	step := func(ev transfer.Event) {
		for _, e := range a.m.Step(a.now, ev) {
			if p, ok := e.(transfer.Post); ok {
				for _, k := range p.Keys {
					flying = append(flying, k)
					sent[k.Slice]++
				}
			}
		}
	}
	step(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgGo{Xfer: 1}})
	next := uint32(len(flying))
	if next >= n {
		t.Fatal("all slices were sent at once")
	}
	step(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgResend{Xfer: 1, Attempt: 1, Slices: []uint32{next, n - 1, n, 1 << 31}}})
	for len(flying) > 0 {
		k := flying[0]
		flying = flying[1:]
		step(transfer.SliceSent{Key: k})
	}
	for s := range uint32(n) {
		if sent[s] != 1 {
			t.Errorf("slice %d was sent %d times", s, sent[s])
		}
	}
	if len(sent) != n {
		t.Errorf("%d slices were sent of %d", len(sent), n)
	}
}

// TestARequestThatComesTwiceIsOne: a copy of it does not have the slice sent once more.
func TestARequestThatComesTwiceIsOne(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	a.step(transfer.Planned{Leg: transfer.Leg{Peer: "b", Epoch: 1, Xfer: 1, End: transfer.Producer}, Slices: 2, Bytes: 8192, Transport: "tcp"})
	posted := 0
	says := func(msg transfer.Msg) {
		for _, e := range a.m.Step(a.now, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: msg}) {
			if p, ok := e.(transfer.Post); ok {
				posted += len(p.Keys)
			}
		}
	}
	says(&transfer.MsgGo{Xfer: 1})
	for range 2 {
		says(&transfer.MsgResend{Xfer: 1, Attempt: 1, Slices: []uint32{1}})
	}
	if posted != 3 {
		t.Errorf("%d slices were posted, want two, and one of them once more", posted)
	}
}

// TestAGoBeforeItsGrantIsNone: what the consumer said before it could know of the segment does not stand in for the word that it is ready.
func TestAGoBeforeItsGrantIsNone(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	goes := func() (posted int) {
		for _, e := range a.m.Step(a.now, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgGo{Xfer: 1}}) {
			if p, ok := e.(transfer.Post); ok {
				posted += len(p.Keys)
			}
		}
		return posted
	}
	goes()
	a.plans(1)
	if n := goes(); n != 1 {
		t.Errorf("%d slices were posted when the consumer was ready, want 1", n)
	}
}

// TestWhatIsSentAgainDoesNotStandForTheRest: the producer says that it has sent everything once each slice was sent, not so many of them.
func TestWhatIsSentAgainDoesNotStandForTheRest(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: 1, End: transfer.Producer}
	a.step(transfer.Planned{Leg: leg, Slices: 2, Bytes: 8192, Transport: "tcp"})
	a.asks(&transfer.MsgGo{Xfer: 1})
	sent := func(slice, attempt uint32) bool {
		a.step(transfer.SliceSent{Key: transfer.SliceKey{Leg: leg, Slice: slice, Attempt: attempt}})
		return a.saysAll()
	}
	if sent(0, 0) {
		t.Error("one of two slices was sent, and b was told that it is all")
	}
	a.asks(&transfer.MsgResend{Xfer: 1, Attempt: 1, Slices: []uint32{0}})
	if sent(0, 1) {
		t.Error("one of two slices was sent twice, and b was told that it is all")
	}
	if !sent(1, 0) {
		t.Errorf("both slices were sent, and b was told %+v", a.said)
	}
}

// saysAll says whether b was told in the last step that everything was sent.
func (a *asker) saysAll() bool {
	return slices.ContainsFunc(a.said, func(msg transfer.Msg) bool { _, is := msg.(*transfer.MsgSent); return is })
}

// TestOfNothingAllIsSent: a take that finds no byte to move is told so as soon as its consumer is ready.
func TestOfNothingAllIsSent(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	a.step(transfer.Planned{Leg: transfer.Leg{Peer: "b", Epoch: 1, Xfer: 1, End: transfer.Producer}, Transport: "tcp"})
	if a.asks(&transfer.MsgGo{Xfer: 1}); !a.saysAll() {
		t.Errorf("b was told %+v", a.said)
	}
}
