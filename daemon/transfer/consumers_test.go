package transfer_test

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// waits checks that a take that was asked for has not begun.
func (s site) waits(x transfer.XferID) {
	s.tb.Helper()
	parked := func(m transfer.Msg) bool { p, ok := m.(*transfer.MsgParked); return ok && p.Xfer == x }
	if len(s.begun) > 0 || !slices.ContainsFunc(s.said, parked) {
		s.tb.Errorf("take %d does not wait: %v were begun; the node was told %+v", x, s.begun, s.said)
	}
}

// takes has a transfer begin and go through, and says whether the offer is still there.
func (s site) takes(x transfer.XferID, engine, instance string, take uint64, i, n int) (stands bool) {
	s.tb.Helper()
	s.asksFor(x, engine, instance, take, i, n)
	return s.goesThrough(x)
}

func (s site) goesThrough(x transfer.XferID) (stands bool) {
	s.tb.Helper()
	leg, born := s.grants(x)
	stands = s.has(x, born)
	s.step(transfer.Fenced{Leg: leg})
	return stands
}

// fails has a node say that a transfer did not go through.
func (s site) fails(x transfer.XferID) {
	s.says(&transfer.MsgEnd{Xfer: x, Status: transfer.Failed, Cause: transfer.Cause{Reason: transfer.Corrupt}})
}

// offered is an offer for so many engines, and a node that takes it.
func offered(t *testing.T, consumers int) site {
	a := newAsker(t, 0)
	a.offers(consumers)
	return a.site("b", 1)
}

// TestAFailedPartGivesThePlaceUp: at once, to who waits. The parts that are in place still count when the engine takes the rest after all.
func TestAFailedPartGivesThePlaceUp(t *testing.T) {
	b := offered(t, 1)
	b.takes(1, "f", "1", 7, 0, 2)
	b.asksFor(2, "f", "1", 7, 1, 2)
	b.begins(2)
	b.asksFor(3, "g", "1", 7, 0, 1)
	b.waits(3)
	b.fails(2)
	b.begins(3)
	b.fails(3)
	if b.takes(4, "f", "1", 7, 1, 2) {
		t.Error("both parts are in place, and the offer stands")
	}
}

// TestAWholeTakeKeepsItsPlace: also when a part of it had failed before it went through.
func TestAWholeTakeKeepsItsPlace(t *testing.T) {
	b := offered(t, 2)
	b.takes(1, "f", "1", 7, 0, 2)
	b.asksFor(2, "f", "1", 7, 1, 2)
	b.fails(2)
	b.takes(3, "f", "1", 7, 1, 2)
	b.asksFor(4, "g", "1", 7, 0, 1)
	b.begins(4)
	b.asksFor(5, "h", "1", 7, 0, 1)
	b.waits(5)
}

// TestATakeThatIsRepeatedCountsOnce: and it counts still, whatever its name.
func TestATakeThatIsRepeatedCountsOnce(t *testing.T) {
	b := offered(t, 2)
	if !b.takes(1, "f", "1", 7, 0, 1) || !b.takes(2, "f", "1", 7, 0, 1) {
		t.Fatal("one engine's take, done twice, ends an offer for two")
	}
	if b.takes(3, "g", "1", 7, 0, 1) {
		t.Error("both engines have taken, and the offer stands")
	}
}

// TestWhatFailedDoesNotHideWhatRuns: an engine's take has a place of its own, whatever is left of its earlier ones.
func TestWhatFailedDoesNotHideWhatRuns(t *testing.T) {
	b := offered(t, 1)
	b.takes(1, "f", "1", 7, 0, 2)
	b.asksFor(2, "f", "1", 7, 1, 2)
	b.fails(2)
	b.asksFor(3, "f", "1", 8, 0, 1)
	b.begins(3)
	b.asksFor(4, "g", "1", 7, 0, 1)
	b.waits(4)
}

// TestTheNextInstanceIsAnotherConsumer: it does not lean on what the one before has taken, and robs nobody of a place.
func TestTheNextInstanceIsAnotherConsumer(t *testing.T) {
	b := offered(t, 2)
	b.takes(1, "f", "1", 7, 0, 1)
	b.asksFor(2, "g", "1", 7, 0, 1)
	b.begins(2)
	b.asksFor(3, "f", "2", 7, 0, 1)
	b.waits(3)
	b.fails(2)
	if b.goesThrough(3) {
		t.Error("both places are taken, and the offer stands")
	}
}

// TestWhatIsLeftOfATakeHidesNoOther: an earlier instance keeps the place of what it took whole, though what it left unfinished before keeps none.
func TestWhatIsLeftOfATakeHidesNoOther(t *testing.T) {
	b := offered(t, 2)
	b.takes(1, "f", "1", 7, 0, 2)
	b.takes(2, "f", "1", 8, 0, 1)
	b.asksFor(3, "g", "1", 7, 0, 1)
	b.begins(3)
	b.asksFor(4, "f", "2", 7, 0, 1)
	b.waits(4)
}

// TestTheNextInstanceWaitsForWhatRuns: a take that has not ended may go through, whoever asked for it.
func TestTheNextInstanceWaitsForWhatRuns(t *testing.T) {
	b := offered(t, 1)
	b.asksFor(1, "f", "1", 7, 0, 1)
	b.begins(1)
	b.asksFor(2, "f", "2", 7, 0, 1)
	b.waits(2)
	b.fails(1)
	b.begins(2)
}

// TestWhoTookBeforeADaemonBeganCountsOnce: its node says so when this daemon is there, or before the offer is back. If
// it takes the offer again, that takes no place from others.
func TestWhoTookBeforeADaemonBeganCountsOnce(t *testing.T) {
	for _, early := range []bool{false, true} {
		a := newAsker(t, 0)
		b := a.site("b", 1)
		if !early {
			a.offers(2)
		}
		for range 2 {
			b.says(&transfer.MsgKey{Drop: true, Engine: "f", Instance: "1", Key: []byte("k"), Token: anyToken})
		}
		if early {
			a.offers(2)
		}
		if n := a.m.Snapshot().Offers[0].Consumed; n != 1 {
			t.Errorf("early %v: %d have taken it, want 1", early, n)
		}
		if !b.takes(1, "f", "1", 7, 0, 1) {
			t.Fatalf("early %v: one engine's take, done twice, ends an offer for two", early)
		}
		if b.takes(2, "g", "1", 7, 0, 1) {
			t.Errorf("early %v: both engines have taken, and the offer stands", early)
		}
	}
}

// newOrphan is an engine of two ranks that offered the same for themselves, and the first of which died; other is the offer of the second.
func newOrphan(t *testing.T) (e *ends, other uint64) {
	e = newEnds(t, func(c *transfer.Config) { c.OrphanLease = 60 * transfer.Second })
	for rank := range uint32(2) {
		s := transfer.SessionID(rank + 1)
		e.step(transfer.SessionOpened{Session: s, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: rank, TPWorld: 2, Credits: 100})
		e.step(transfer.LayoutSet{Session: s, Layout: oneRank(t)})
	}
	e.offer(1, "k", 0, 1)
	other = e.offer(2, "k", 0, 1)
	e.step(transfer.SessionClosed{Session: 1, Died: true, Cause: transfer.Cause{Reason: transfer.Closed, Text: "killed"}})
	return e, other
}

// TestASchedulerThatComesEndsNoOfferOfRanks: what workers offered for themselves outlives one of them, whoever schedules the others.
func TestASchedulerThatComesEndsNoOfferOfRanks(t *testing.T) {
	e, other := newOrphan(t)
	e.step(transfer.SessionOpened{Session: 3, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 100})
	e.runs(other)
	if offers := e.m.Snapshot().Offers; len(offers) != 1 {
		t.Errorf("offers: %+v", offers)
	}
}

// TestAnOrphanIsNotReplacedByItsOwnRanks: what outlives one of several ranks is theirs still, and the others have offered under its key.
func TestAnOrphanIsNotReplacedByItsOwnRanks(t *testing.T) {
	e, other := newOrphan(t)
	e.is(e.offer(2, "k", 1, 1), transfer.Failed, transfer.Busy, "rank 1 has an offer under it already")
	e.runs(other)
}

// TestAnOrphanEndsForThoseWhoLive: its other ranks hear when offers.orphan_lease is over, which is shorter than its lease.
func TestAnOrphanEndsForThoseWhoLive(t *testing.T) {
	e := newEnds(t, func(c *transfer.Config) { c.OrphanLease = 3 * transfer.Second })
	for rank := range uint32(2) {
		s := transfer.SessionID(rank + 1)
		e.step(transfer.SessionOpened{Session: s, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: rank, TPWorld: 2, Credits: 100})
		e.step(transfer.LayoutSet{Session: s, Layout: oneRank(t)})
	}
	e.offer(1, "k", 0, 1)
	other := e.offer(2, "k", 0, 1)
	e.step(transfer.SessionClosed{Session: 1, Died: true, Cause: transfer.Cause{Reason: transfer.Closed, Text: "killed"}})
	e.pass(2 * transfer.Second)
	e.runs(other)
	e.pass(transfer.Second)
	e.is(other, transfer.Failed, transfer.Expired, "offers.orphan_lease is over")
}
