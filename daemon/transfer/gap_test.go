package transfer_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestPipeGap: behind an item that is refused, whatever for, a pipe takes no more and is not sealed: what was put before is received, and
// then both ends hear why there is no more.
func TestPipeGap(t *testing.T) {
	small := &transfer.BindOp{Kind: transfer.BindSend, Name: "p", Capacity: 1000}
	good := func(e *ends, tx uint64) uint64 { return e.put(1, tx, 2, 10, "") }
	for _, tc := range []struct {
		name    string
		before  transfer.Event // what makes a good item be refused
		put     func(e *ends, tx uint64) uint64
		reason  transfer.Reason
		says    string
		hears   transfer.Reason // the receiver
		refuses bool            // its daemon refuses it everything new, so that it gets nothing that it has not asked for
	}{
		{"too large", nil, func(e *ends, tx uint64) uint64 { return e.put(1, tx, 2, 1321, "") }, transfer.Invalid, "1321 bytes does not fit into its capacity of 1000", transfer.PeerGone, false},
		{"not for a pipe", nil, func(e *ends, tx uint64) uint64 {
			return e.submit(1, &transfer.PutOp{Target: tx, Form: transfer.MatchPrefix, Tokens: []uint32{1}})
		}, transfer.Invalid, "form is 3", transfer.PeerGone, false},
		{"too many", nil, good, transfer.Quota, "the limit is limits.items = 1", transfer.PeerGone, false},
		{"drained", transfer.Drain{}, good, transfer.Unavailable, "is draining", transfer.PeerGone, true},
		{"stopped", transfer.Drain{Stop: true}, good, transfer.Restarted, "is about to end", transfer.Restarted, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnds(t, func(c *transfer.Config) { c.MaxItems = 1 })
			tx, rx := e.open(1, small), e.open(2, recv)
			first := e.get(2, rx, 0, 0, 10)
			ahead := e.get(2, rx, 1, 2, 10)
			e.isDone(e.put(1, tx, 0, 10, ""))
			e.isDone(first)
			second := e.put(1, tx, 0, 10, "")
			e.isDone(ahead)
			waits := e.get(2, rx, 3, 0, 10)
			if tc.reason == transfer.Quota {
				second = e.put(1, tx, 0, 10, "")
			}
			if tc.before != nil {
				e.step(tc.before)
			}
			e.is(tc.put(e, tx), transfer.Failed, tc.reason, tc.says)
			e.is(waits, transfer.Failed, tc.hears, tc.says)
			e.is(good(e, tx), transfer.Failed, tc.reason, tc.says)
			e.is(e.submit(1, &transfer.SealOp{Target: tx}), transfer.Failed, tc.reason, tc.says)
			e.runs(tx)
			if tc.refuses {
				return
			}
			if tc.reason == transfer.Quota {
				e.isDone(e.get(2, rx, 2, 0, 10))
			}
			e.isDone(second)
			e.is(good(e, tx), transfer.Failed, tc.reason, tc.says) // although there is room now
			e.step(transfer.SessionClosed{Session: 1, Cause: transfer.Cause{Reason: transfer.Closed, Text: "closed"}})
			e.is(e.get(2, rx, 3, 0, 10), transfer.Failed, tc.hears, tc.says)
		})
	}
}

// TestBufferGap: an entry that is refused is nobody's business but its owner's.
func TestBufferGap(t *testing.T) {
	e := newEnds(t, func(c *transfer.Config) { c.MaxItems = 1 })
	own := e.open(1, &transfer.BindOp{Kind: transfer.BindOwn, Name: "b", Capacity: 1 << 20})
	sel := e.open(2, &transfer.BindOp{Kind: transfer.BindSelect, Name: "b"})
	insert := func() uint64 { return e.submit(1, &transfer.PutOp{Target: own, Form: transfer.MatchAny}) }
	one := insert()
	e.is(insert(), transfer.Failed, transfer.Quota, "limits.items = 1")
	e.isDone(e.submit(2, &transfer.GetOp{Target: sel, Match: transfer.MatchAny}))
	e.isDone(one)
	waits := e.submit(2, &transfer.GetOp{Target: sel, Match: transfer.MatchAny})
	e.isDone(insert())
	e.isDone(waits)
	e.step(transfer.Drain{Stop: true})
	e.is(insert(), transfer.Failed, transfer.Restarted, "is about to end")
	e.isDone(e.submit(1, &transfer.SealOp{Target: own}))
	e.isDone(own)
}

// TestPipesAreCounted: each end shows how many its engine has.
func TestPipesAreCounted(t *testing.T) {
	e := newEnds(t, func(c *transfer.Config) { c.MaxPipes = 3 })
	e.open(1, send)
	e.open(2, recv)
	want := transfer.QuotaInfo{Key: "limits.pipes", Used: 2, Limit: 3}
	for _, s := range e.m.Snapshot().Sessions {
		if !slices.Contains(s.Quotas, want) {
			t.Errorf("session %d has %+v, want %+v among them", s.Session, s.Quotas, want)
		}
	}
}

// TestPipesThatLingerAreCounted: one whose sender is gone counts until what was put is received, or its time is over, and who is refused hears of that.
func TestPipesThatLingerAreCounted(t *testing.T) {
	e := newEnds(t, func(c *transfer.Config) { c.MaxPipes = 1 })
	tx := e.open(1, &transfer.BindOp{Kind: transfer.BindSend, Name: "p", Capacity: 1 << 20, Linger: 2e9})
	e.put(1, tx, 0, 300, "a")
	e.step(transfer.SessionClosed{Session: 1, Cause: transfer.Cause{Reason: transfer.Closed, Text: "closed"}})
	next := &transfer.BindOp{Kind: transfer.BindSend, Name: "q", Capacity: 1 << 20}
	e.is(e.open(2, next), transfer.Failed, transfer.Quota, "limits.pipes = 1: close some, wait for those that linger, or raise that")
	e.pass(3e9)
	e.runs(e.submit(2, next))
}

// TestAUsersPipesThatLingerAreCounted: nor has a user, who can make cgroups and so be many owners, more than four times as many.
func TestAUsersPipesThatLingerAreCounted(t *testing.T) {
	const most = 4 * 2
	e := newEnds(t, func(c *transfer.Config) { c.MaxPipes = 2 })
	last := transfer.SessionID(0)
	opens := func(user uint32, owner string) uint64 {
		last++
		e.step(transfer.SessionOpened{Session: last, Engine: "e", Owner: owner, User: user, Role: transfer.Endpoint, Credits: 1000})
		e.step(transfer.LayoutSet{Session: last, Layout: arena(t, 1024)})
		return e.submit(last, &transfer.BindOp{Kind: transfer.BindSend, Name: fmt.Sprint("p", last), Capacity: 1 << 20, Linger: 2e9})
	}
	for range 2 { // what lingers no more does not count
		for i := range most {
			tx := opens(7, fmt.Sprint("owner ", i))
			e.put(last, tx, 0, 300, "a")
			e.step(transfer.SessionClosed{Session: last, Cause: transfer.Cause{Reason: transfer.Closed, Text: "closed"}})
		}
		e.is(opens(7, "another"), transfer.Failed, transfer.Quota, "this user has 8 pipes and lookup buffers that linger, of all its cgroups, the limit is 4 times limits.pipes = 2: receive what is in some")
		e.runs(opens(8, "another user's"))
		e.step(transfer.SessionClosed{Session: last, Cause: transfer.Cause{Reason: transfer.Closed, Text: "closed"}})
		e.pass(3e9)
	}
}

// TestAnOwnersPipesThatLingerAreCounted: engines' names are free, and sessions that are over count against no limit of sessions. So no more
// pipes and lookup buffers of an owner linger than may be of one engine, and its next sender is refused; not its receivers, nor other owners.
func TestAnOwnersPipesThatLingerAreCounted(t *testing.T) {
	e := newEnds(t, func(c *transfer.Config) { c.MaxPipes = 2 })
	of := func(id transfer.SessionID, engine, owner string, op *transfer.BindOp) uint64 {
		e.step(transfer.SessionOpened{Session: id, Engine: engine, Owner: owner, Role: transfer.Endpoint, Credits: 1000})
		e.step(transfer.LayoutSet{Session: id, Layout: arena(t, 1024)})
		return e.submit(id, op)
	}
	closed := func(id transfer.SessionID) {
		e.step(transfer.SessionClosed{Session: id, Cause: transfer.Cause{Reason: transfer.Closed, Text: "closed"}})
	}
	insert := func(id transfer.SessionID, target uint64) {
		e.runs(e.submit(id, &transfer.PutOp{Target: target, Form: transfer.MatchAny, Bytes: 300, Blocks: blocksOf(0, 300)}))
	}
	e.put(1, of(1, "first", "o", &transfer.BindOp{Kind: transfer.BindSend, Name: "p", Capacity: 1 << 20, Linger: 2e9}), 0, 300, "a")
	closed(1)
	insert(2, of(2, "second", "o", &transfer.BindOp{Kind: transfer.BindOwn, Name: "b", Capacity: 1 << 20, Linger: 4e9}))
	closed(2)
	const says = "this user and cgroup has 2 pipes and lookup buffers that linger, of all its engines, the limit is limits.pipes = 2: " +
		"receive what is in some, wait until their linger is over, or raise that"
	next := &transfer.BindOp{Kind: transfer.BindSend, Name: "q", Capacity: 1 << 20}
	own := &transfer.BindOp{Kind: transfer.BindOwn, Name: "c", Capacity: 1 << 20}
	e.is(of(3, "third", "o", next), transfer.Failed, transfer.Quota, says)
	e.is(e.submit(3, own), transfer.Failed, transfer.Quota, says)
	e.runs(of(4, "third", "another", next))

	rx := of(5, "third", "o", &transfer.BindOp{Kind: transfer.BindRecv, Name: "p"})
	e.isDone(e.get(5, rx, 0, 0, 300)) // all that was in one
	closed(5)
	empty := e.submit(3, &transfer.BindOp{Kind: transfer.BindOwn, Name: "r", Capacity: 1 << 20})
	e.runs(empty)
	closed(3) // it leaves nothing
	third := of(6, "fourth", "o", own)
	insert(6, third)
	e.step(transfer.SessionClosed{Session: 6, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "died"}})
	last := &transfer.BindOp{Kind: transfer.BindSend, Name: "r", Capacity: 1 << 20}
	e.is(of(7, "fifth", "o", last), transfer.Failed, transfer.Quota, says)
	e.pass(5e9) // the linger of one is over
	e.runs(e.submit(7, last))
}
