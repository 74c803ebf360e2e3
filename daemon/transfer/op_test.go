package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestWhatIsRefusedHoldsNothing: neither in the ranks before the one whose blocks are in use, nor for want of room for completions.
func TestWhatIsRefusedHoldsNothing(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	for s := transfer.SessionID(1); s <= 3; s++ {
		ev := transfer.SessionOpened{Session: s, Engine: "e", Role: transfer.Worker, Rank: uint32(s - 1), TPWorld: 2, Credits: 1000}
		if s == 3 {
			ev.Role, ev.Rank, ev.Credits = transfer.Scheduler, 0, 2
		}
		m.Step(1, ev)
		if s != 3 {
			m.Step(1, transfer.LayoutSet{Session: s, Layout: oneRank(t)})
		}
	}
	user := uint64(0)
	refused := func(s transfer.SessionID, op transfer.Op, want transfer.Reason) {
		t.Helper()
		user++
		before := m.Snapshot()
		why := transfer.OK
		for _, e := range m.Step(1, transfer.Submit{Session: s, UserData: user, Op: op}) {
			if c, ok := e.(transfer.Complete); ok && c.UserData == user {
				why = c.Reason
			}
		}
		if why != want {
			t.Errorf("%T: %s, want %s", op, why, want)
		}
		if after := m.Snapshot(); after.HoldsShared != before.HoldsShared || after.HoldsExclusive != before.HoldsExclusive {
			t.Errorf("%T holds %d and %d blocks more, and was refused", op, after.HoldsShared-before.HoldsShared, after.HoldsExclusive-before.HoldsExclusive)
		}
	}
	offer := func(key string, blocks []layout.BlockList) *transfer.OfferOp {
		return &transfer.OfferOp{Key: []byte(key), Token: anyToken, Sealed: true, Blocks: blocks}
	}
	take := func(blocks []layout.BlockList) *transfer.TakeOp {
		return &transfer.TakeOp{Key: []byte("x"), Token: anyToken, LayerSlot: transfer.NoSlot, Blocks: blocks}
	}
	refused(3, offer("k", someBlocks(0, 1)), transfer.Quota)
	refused(3, take(someBlocks(0, 1)), transfer.Quota)
	m.Step(1, transfer.CreditsReturned{Session: 3, N: 1000})
	m.Step(1, transfer.Submit{Session: 2, UserData: 1000, Op: take(someBlocks(0, 1))})
	refused(3, offer("k", someBlocks(0, 1)), transfer.Busy)
	refused(3, take(someBlocks(0, 1)), transfer.Busy)
	m.Step(1, transfer.Submit{Session: 1, UserData: 1001, Op: offer("w", someBlocks(2, 1))})
	refused(3, offer("w", someBlocks(3, 1)), transfer.Busy) // it is the workers' own
}

// TestAnExtensionThatIsRefusedGivesBackOnce: the end of its offer does not let go of what others hold since.
func TestAnExtensionThatIsRefusedGivesBackOnce(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	for s := transfer.SessionID(1); s <= 2; s++ {
		m.Step(1, transfer.SessionOpened{Session: s, Engine: "e", Role: transfer.Worker, Rank: uint32(s - 1), TPWorld: 2, Credits: 1000})
		m.Step(1, transfer.LayoutSet{Session: s, Layout: oneRank(t)})
	}
	m.Step(1, transfer.SessionOpened{Session: 3, Engine: "e", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000})
	submit := func(s transfer.SessionID, user uint64, op transfer.Op) {
		m.Step(1, transfer.Submit{Session: s, UserData: user, Op: op})
	}
	next := []layout.BlockList{{FirstToken: 1, NTokens: 1, IDs: []uint32{1}}}
	take := func(id uint64) *transfer.TakeOp {
		return &transfer.TakeOp{Key: []byte("x"), Token: anyToken, TakeID: id, LayerSlot: transfer.NoSlot, Blocks: []layout.BlockList{{NTokens: 1, IDs: []uint32{1}}}}
	}
	submit(3, 1, &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Blocks: []layout.BlockList{{NTokens: 1, IDs: []uint32{0}}}})
	submit(2, 2, take(1))
	submit(3, 3, &transfer.ExtendOp{Target: 1, Blocks: next, Sealed: true}) // rank 1 uses that block
	submit(1, 4, take(2))
	submit(3, 5, &transfer.WithdrawOp{Target: 1})
	if n := m.Snapshot(); n.HoldsShared != 0 || n.HoldsExclusive != 2 {
		t.Errorf("%d shared and %d exclusive holds, want those of the two takes", n.HoldsShared, n.HoldsExclusive)
	}
	submit(3, 6, &transfer.OfferOp{Key: []byte("l"), Token: anyToken, Sealed: true, Blocks: []layout.BlockList{{NTokens: 1, IDs: []uint32{1}}}})
	if n := len(m.Snapshot().Offers); n != 0 {
		t.Error("blocks that are being taken into are offered")
	}
}

// quarantined counts how often the offer of "k" is said to be in quarantine, and to be released.
func (a *asker) quarantined(ev transfer.Event) (times, released int) {
	for _, e := range a.m.Step(a.now, ev) {
		if c, ok := e.(transfer.Complete); ok && c.UserData == 50 {
			switch c.Status {
			case transfer.Quarantined:
				times++
			case transfer.Released:
				released++
			}
		}
	}
	return times, released
}

// TestQuarantineIsToldOnce: however many fences fail, and of what has ended alone; RELEASED comes with the last of them.
func TestQuarantineIsToldOnce(t *testing.T) {
	b := offered(t, 2)
	var legs []transfer.Leg
	for x := transfer.XferID(1); x <= 2; x++ {
		b.asksFor(x, "f", "1", uint64(x), 0, 1)
		b.begins(x)
		legs = append(legs, transfer.Leg{Peer: "b", Epoch: 1, Xfer: x, End: transfer.Producer})
	}
	fails := transfer.Cause{Reason: transfer.Unavailable, Text: "no answer"}
	b.fails(1)
	if n, _ := b.quarantined(transfer.Fenced{Leg: legs[0], Cause: fails}); n != 0 {
		t.Error("the offer stands, and is said to be in quarantine")
	}
	n, _ := b.quarantined(transfer.Submit{Session: 1, UserData: 51, Op: &transfer.WithdrawOp{Target: 50}})
	for _, leg := range append(legs, legs...) {
		again, _ := b.quarantined(transfer.Fenced{Leg: leg, Cause: fails})
		n += again
	}
	if n != 1 {
		t.Errorf("an offer whose fences fail is said to be in quarantine %d times, want once", n)
	}
	_, early := b.quarantined(transfer.Fenced{Leg: legs[0]})
	_, last := b.quarantined(transfer.Fenced{Leg: legs[1]})
	if early != 0 || last != 1 {
		t.Errorf("released %d times with the first fence and %d with the last, want 0 and 1", early, last)
	}
}

// TestSessionsForgetWhatHasEnded: those that an operation was about, too, which live as long as their engine.
func TestSessionsForgetWhatHasEnded(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1000})
	m.Step(1, transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
	m.Step(1, transfer.SessionOpened{Session: 2, Engine: "e", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000})
	m.Step(1, transfer.Submit{Session: 2, UserData: 1, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Sealed: true, Blocks: someBlocks(0, 1)}})
	if m.Uses(1) != 1 || m.Uses(2) != 1 {
		t.Errorf("the worker is told about %d operations and the scheduler about %d, want 1 and 1", m.Uses(1), m.Uses(2))
	}
	m.Step(1, transfer.Submit{Session: 2, UserData: 2, Op: &transfer.WithdrawOp{Target: 1}})
	if m.Uses(1) != 0 || m.Uses(2) != 0 {
		t.Errorf("after its end the worker is told about %d operations and the scheduler about %d", m.Uses(1), m.Uses(2))
	}
}

// TestNewsOfWhoIsNotKnown: clients and peers go while events of theirs are on their way. Nothing comes of those.
func TestNewsOfWhoIsNotKnown(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	cause := transfer.Cause{Reason: transfer.PeerGone, Text: "gone"}
	legs := []transfer.Leg{{Peer: "nobody", Epoch: 7, Xfer: 9, End: transfer.Producer}, {Xfer: 9, End: transfer.Consumer}}
	events := []transfer.Event{
		transfer.Submit{Session: 99, Op: &transfer.WithdrawOp{}}, transfer.Submit{Session: 99, Op: schedTake(1)}, transfer.LayoutSet{Session: 99, Layout: oneRank(t)},
		transfer.SessionClosed{Session: 99, Cause: cause}, transfer.Progress{Session: 99, Value: 1}, transfer.CreditsReturned{Session: 99, N: 1},
		transfer.RegionRemoved{Session: 99, Region: 1}, transfer.RegionInvalidated{Session: 99, Region: 1}, transfer.RegionRevalidated{Session: 99, Region: 1},
		transfer.PeerDown{Node: "nobody", Epoch: 7, Cause: cause}, transfer.LinkLost{Node: "nobody", Epoch: 7}, transfer.DialFailed{Hint: "nobody", Final: true, Cause: cause},
		transfer.PeerMsg{Node: "nobody", Epoch: 7, Msg: takeOf(1, oneRank(t))},
	}
	for _, leg := range legs {
		key := transfer.SliceKey{Leg: leg}
		events = append(events, transfer.Planned{Leg: leg}, transfer.Fenced{Leg: leg}, transfer.Fenced{Leg: leg, Cause: cause},
			transfer.InlineRead{Leg: leg}, transfer.InlineWritten{Leg: leg}, transfer.SliceSent{Key: key}, transfer.SliceLanded{Key: key})
	}
	for _, ev := range events {
		if effects := m.Step(1, ev); len(effects) > 0 {
			t.Errorf("%T: %+v", ev, effects)
		}
	}
}
