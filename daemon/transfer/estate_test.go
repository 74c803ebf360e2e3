package transfer_test

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// heirs is a machine whose sessions come, offer and die.
type heirs struct {
	*ends
	last  transfer.SessionID
	names int
}

func newHeirs(t *testing.T) *heirs {
	return &heirs{ends: newEnds(t, func(c *transfer.Config) { c.OrphanLease = 30 * transfer.Second })}
}

// dies has a session of an owner and a user make finished offers of so many block ids each, and die. It returns how many outlive it.
func (h *heirs) dies(owner string, user uint32, offers int, ids uint32) (outlive int) {
	h.tb.Helper()
	h.last++
	h.step(transfer.SessionOpened{Session: h.last, Engine: fmt.Sprint("engine ", h.last), Owner: owner, User: user, Role: transfer.Worker, Credits: 1000})
	h.step(transfer.LayoutSet{Session: h.last, Layout: arena(h.tb, layout.MaxIDs)})
	blocks := []layout.BlockList{{NTokens: ids * block, IDs: layout.Adjacent(0, ids)}}
	for range offers {
		h.names++
		h.runs(h.submit(h.last, &transfer.OfferOp{Key: []byte(fmt.Sprint(h.names)), Token: anyToken, Sealed: true, Lease: 60 * transfer.Second, Blocks: blocks}))
	}
	before := len(h.m.Snapshot().Offers)
	h.step(transfer.SessionClosed{Session: h.last, Died: true, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "killed"}})
	return offers - (before - len(h.m.Snapshot().Offers))
}

// TestWhatTheDeadLeaveBehindIsBounded: sessions that are over count against no limit of sessions, and each may have left as much as a session may
// have. So offers outlive their engines only up to what one session may have in block ids, of all dead sessions of an owner together, with what
// else is kept of them. What is beyond that ends with its engine; nothing that was left before does, and nothing of another owner.
func TestWhatTheDeadLeaveBehindIsBounded(t *testing.T) {
	const most = 62 // offers of the most block ids; the table of holds takes as much as one
	h := newHeirs(t)
	for range 2 { // what has ended does not count
		for _, c := range []struct {
			owner   string
			offers  int
			ids     uint32
			outlive int
		}{
			{"a", most, layout.MaxIDs, most}, {"a", 3, layout.MaxIDs, 0}, {"a", 2, 1, 2}, {"b", 3, layout.MaxIDs, 3},
		} {
			if n := h.dies(c.owner, 1, c.offers, c.ids); n != c.outlive {
				t.Errorf("owner %s: %d of %d offers of %d block ids outlive their engine, want %d", c.owner, n, c.offers, c.ids, c.outlive)
			}
		}
		h.pass(30 * transfer.Second)
	}
}

// TestAUserOfManyOwnersLeavesBehindNoMoreThanFour: a user can make as many cgroups as it likes, each of which is another owner.
func TestAUserOfManyOwnersLeavesBehindNoMoreThanFour(t *testing.T) {
	const most = 62
	h := newHeirs(t)
	for i := range 4 {
		if n := h.dies(fmt.Sprint("owner ", i), 1, most, layout.MaxIDs); n != most {
			t.Errorf("owner %d: %d of %d offers outlive their engine", i, n, most)
		}
	}
	for user, want := range map[uint32]int{1: 2, 2: most} {
		if n := h.dies(fmt.Sprint("another of ", user), user, most, layout.MaxIDs); n < want || n > want+2 {
			t.Errorf("another owner of user %d: %d of %d offers outlive their engine, want %d", user, n, most, want)
		}
	}
}

// TestASchedulerLooksAtItsPredecessorsOffers, and at no others: one that comes and goes in a loop costs nobody anything, however many offers there are.
func TestASchedulerLooksAtItsPredecessorsOffers(t *testing.T) {
	e := newEnds(t, func(c *transfer.Config) { c.OrphanLease = 30 * transfer.Second })
	scheduler := func(id transfer.SessionID) {
		e.step(transfer.SessionOpened{Session: id, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000})
	}
	dies := func(id transfer.SessionID) {
		e.step(transfer.SessionClosed{Session: id, Died: true, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "killed"}})
	}
	for id, engine := range map[transfer.SessionID]string{1: "e", 2: "another"} {
		e.step(transfer.SessionOpened{Session: id, Engine: engine, Instance: "i", Role: transfer.Worker, Credits: 1000})
		e.step(transfer.LayoutSet{Session: id, Layout: oneRank(t)})
	}
	for i := range 60 {
		e.runs(e.offer(2, fmt.Sprint("of another ", i), 0, 1))
	}
	scheduler(3)
	for i := range 2 {
		e.runs(e.offer(3, fmt.Sprint("left ", i), 0, 1))
	}
	dies(3)
	if n := e.m.Outlived(1); n != 2 {
		t.Errorf("the next scheduler looks at %d offers, want 2", n)
	}
	scheduler(4)
	if n, offers := e.m.Outlived(1), len(e.m.Snapshot().Offers); n != 0 || offers != 60 {
		t.Errorf("the one after that looks at %d offers, and %d stand, want none and 60", n, offers)
	}
	e.runs(e.offer(4, "left again", 0, 1))
	dies(4)
	e.pass(30 * transfer.Second)
	if n := e.m.Outlived(1); n != 0 {
		t.Errorf("%d offers are looked at whose time is over", n)
	}
}
