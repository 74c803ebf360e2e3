package transfer_test

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// What a daemon that is about to end leaves to the next one has not ended when a rank gives its memory up, and the next daemon would carry
// it out with whatever the memory holds by then. So this one does not say that the memory is free.
func TestMemoryIsNotGivenBackUnderWhatIsLeftToTheNextDaemon(t *testing.T) {
	offer := func(s transfer.SessionID, user uint64) transfer.Submit {
		return transfer.Submit{Session: s, UserData: user, Op: &transfer.OfferOp{
			Key: []byte("k"), Token: []byte("0123456789abcdef"), Blocks: someBlocks(0, 1), Lease: 1000, Sealed: true}}
	}
	const worker, other, scheduler = 1, 2, 3
	watch := func(s transfer.SessionID, user uint64) transfer.Submit {
		return transfer.Submit{Session: s, UserData: user, Op: &transfer.WatchOp{Key: []byte("k"), Token: []byte("0123456789abcdef")}}
	}
	for name, c := range map[string]struct {
		left  []transfer.SessionID
		also  bool // and a watch, which is about no memory
		ended bool // another session was told to go already, so ends are not reported any more
		free  bool
	}{
		"nothing":               {free: true},
		"only a watch":          {also: true, free: true},
		"the rank's own":        {left: []transfer.SessionID{worker}},
		"its own, and a watch":  {left: []transfer.SessionID{worker}, also: true},
		"the scheduler's":       {left: []transfer.SessionID{scheduler}},
		"another rank's":        {left: []transfer.SessionID{other}, free: true},
		"ends without a report": {ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := engineOn(t)
			m.Step(2, transfer.Drain{Stop: true})
			for i, s := range c.left {
				if e := m.Step(3, offer(s, uint64(i)+1)); len(e) != 0 {
					t.Fatalf("what is left to the next daemon is answered: %v", e)
				}
			}
			if c.also {
				m.Step(3, watch(worker, 7))
			}
			if c.ended {
				m.Step(3, transfer.SessionClosed{Session: other, Cause: transfer.Cause{Reason: transfer.Unavailable, Text: "stopping"}})
			}
			free := false
			for _, e := range m.Step(4, transfer.RegionInvalidated{Session: worker, Region: 1}) {
				if _, ok := e.(transfer.RegionDrained); ok {
					free = true
				}
			}
			if free != c.free {
				t.Errorf("the memory is said to be free: %v, want %v", free, c.free)
			}

			// What comes from now on fails, as it would without a restart: by then the memory may be back.
			for _, s := range []transfer.SessionID{worker, scheduler} {
				refused := false
				for _, e := range m.Step(5, offer(s, 9)) {
					end, ok := e.(transfer.Complete)
					refused = refused || ok && end.UserData == 9 && end.Status == transfer.Failed && end.Reason == transfer.Unavailable
				}
				if !refused && !c.ended {
					t.Errorf("session %d may offer blocks without memory", s)
				}
			}
		})
	}
}

// What a scheduler has submitted ends with the memory of a rank, too, while it waits for another rank that is not back after a restart. Else
// it would begin once that rank comes, with whatever the memory holds by then.
func TestWhatWaitsForRanksEndsWithTheMemoryOfAnother(t *testing.T) {
	const scheduler, worker = 1, 2
	e := &ends{tb: t, now: 1, m: transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 << 32 }})}
	e.step(transfer.Awaited{Sessions: []transfer.AwaitedSession{{Engine: "e", Instance: "i", Role: transfer.Worker, Rank: 1, Layout: true}}, For: 60 * transfer.Second})
	e.step(transfer.SessionOpened{Session: worker, Engine: "e", Instance: "i", Role: transfer.Worker, TPWorld: 2, Credits: 1000, Resumed: true})
	e.step(transfer.LayoutSet{Session: worker, Layout: oneRank(t)})
	e.step(transfer.SessionOpened{Session: scheduler, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000})
	offer, take := e.offer(scheduler, "offered", 0, 1), e.take(scheduler, "taken", "b", 1, 1)
	over := e.submit(scheduler, &transfer.TakeOp{Key: []byte("over"), Token: anyToken, Peer: "b", Blocks: someBlocks(2, 1), Timeout: transfer.Second, Restarted: true})
	watch := e.submit(scheduler, &transfer.WatchOp{Key: []byte("watched"), Token: anyToken, Peer: "b", Timeout: transfer.Second})
	e.runs(offer)
	e.runs(take)
	e.step(transfer.RegionInvalidated{Session: worker, Region: 1})
	e.is(offer, transfer.Failed, transfer.Unavailable, `key "offered": memory of rank 0 of engine "e" on node "a" was invalidated while the operation used it; offer again when it is back`)
	e.is(take, transfer.Failed, transfer.Unavailable, `key "taken": memory of rank 0 of engine "e" on node "a" was invalidated while the operation used it; take again when it is back`)
	e.runs(over) // its ranks have to hear of it, whenever they are back
	e.runs(watch)

	// The key is free, and what is submitted now waits as before.
	e.step(transfer.RegionRevalidated{Session: worker, Region: 1})
	again := e.offer(scheduler, "offered", 0, 1)
	e.runs(again)
	e.step(transfer.SessionOpened{Session: 3, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: 1, TPWorld: 2, Credits: 1000, Resumed: true})
	e.step(transfer.LayoutSet{Session: 3, Layout: oneRank(t)})
	e.runs(again)
	e.keeps(scheduler, 1)
}

// Nor does what a scheduler submits wait for a rank while the memory of another is away: it is refused, as it would be without a restart, and
// does not begin once that rank has other memory. That rank may have given its memory up here, or come back without it; then what was
// submitted before it came ends, too.
func TestWhatNeedsMemoryThatIsAwayWaitsForNoRank(t *testing.T) {
	const scheduler, worker, late = 1, 2, 3
	for name, c := range map[string]struct {
		before  bool // it was submitted before the rank came
		without bool // the rank comes without its memory
	}{
		"given up here":                                  {},
		"the rank came without it":                       {without: true},
		"the rank comes without it after the submission": {before: true, without: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := &ends{tb: t, now: 1, m: transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 << 32 }})}
			e.step(transfer.Awaited{For: 60 * transfer.Second, Sessions: []transfer.AwaitedSession{
				{Engine: "e", Instance: "i", Role: transfer.Worker, Rank: 0, Layout: true}, {Engine: "e", Instance: "i", Role: transfer.Worker, Rank: 1, Layout: true}}})
			comes := func(id transfer.SessionID, rank uint32) {
				e.step(transfer.SessionOpened{Session: id, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: rank, TPWorld: 2, Credits: 1000, Resumed: true})
				if id == worker && c.without {
					e.step(transfer.RegionInvalidated{Session: id, Region: 1})
				}
				e.step(transfer.LayoutSet{Session: id, Layout: oneRank(t)})
				if id == worker && !c.without {
					e.step(transfer.RegionInvalidated{Session: id, Region: 1})
				}
			}
			if !c.before {
				comes(worker, 0)
			}
			e.step(transfer.SessionOpened{Session: scheduler, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000, Resumed: true})
			offer, take := e.offer(scheduler, "offered", 0, 1), e.take(scheduler, "taken", "b", 1, 1)
			over := e.submit(scheduler, &transfer.TakeOp{Key: []byte("over"), Token: anyToken, Peer: "b", Blocks: someBlocks(2, 1), Timeout: transfer.Second, Restarted: true})
			if c.before {
				e.runs(offer)
				e.runs(take)
				comes(worker, 0)
			}
			e.runs(over) // its ranks have to hear of it, whenever they are back
			e.step(transfer.RegionRevalidated{Session: worker, Region: 1})
			comes(late, 1)
			for _, user := range []uint64{offer, take} {
				c := e.ended(user)
				if c == nil || c.Status != transfer.Failed || c.Reason != transfer.Unavailable {
					t.Errorf("operation %d, which was about memory that was away, ends %+v", user, c)
				}
			}
		})
	}
}

// What a scheduler brings along from before is not begun where a rank has given its memory up meanwhile, and has it again: it is about what the
// memory held before, and nobody could tell this daemon to end it.
func TestWhatASchedulerBringsAlongIsNotAboutMemoryThatWasGivenUp(t *testing.T) {
	const worker, scheduler = 1, 2
	for name, gaveUp := range map[string]bool{"it was given up here": true, "it was not": false} {
		t.Run(name, func(t *testing.T) {
			e := &ends{tb: t, now: 1, m: transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 << 32 }})}
			e.step(transfer.Awaited{For: 60 * transfer.Second, Sessions: []transfer.AwaitedSession{
				{Engine: "e", Instance: "i", Role: transfer.Worker, Rank: 0, Layout: true}, {Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank}}})
			e.step(transfer.SessionOpened{Session: worker, Engine: "e", Instance: "i", Role: transfer.Worker, Credits: 1000, Resumed: true})
			e.step(transfer.LayoutSet{Session: worker, Layout: oneRank(t)})
			if gaveUp {
				e.step(transfer.RegionInvalidated{Session: worker, Region: 1})
				e.step(transfer.RegionRevalidated{Session: worker, Region: 1})
			}
			e.step(transfer.SessionOpened{Session: scheduler, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000, Resumed: true})
			offer := e.submit(scheduler, &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Sealed: true, Again: true, Lease: 60 * transfer.Second, Blocks: someBlocks(0, 1)})
			take := e.submit(scheduler, &transfer.TakeOp{Key: []byte("t"), Token: anyToken, Peer: "b", Again: true, LayerSlot: transfer.NoSlot, Timeout: transfer.Second, Blocks: someBlocks(1, 1)})
			for _, user := range []uint64{offer, take} {
				if gaveUp {
					e.is(user, transfer.Failed, transfer.Restarted, `a rank of engine "e" on node "a" has given memory up, perhaps since this was submitted; submit it again for what the memory holds now`)
				} else {
					e.runs(user)
				}
			}
			e.runs(e.offer(scheduler, "new", 2, 1))
		})
	}
}

// TestASchedulerHasBroughtAll once something new of it is judged: what waits for its ranks is not, nor what a daemon that is about to end leaves to
// the next one. So that one may be sent it again, and has to know that it may be about memory that was given up.
func TestASchedulerHasBroughtAll(t *testing.T) {
	const scheduler, worker, late = 1, 2, 3
	for _, resumed := range []bool{true, false} {
		for _, stops := range []bool{false, true} {
			m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
			var said int
			step := func(ev transfer.Event) {
				for _, e := range m.Step(1, ev) {
					if b, ok := e.(transfer.Brought); ok {
						if said++; b.Session != scheduler {
							t.Errorf("session %d has brought all", b.Session)
						}
					}
				}
			}
			user := uint64(0)
			submits := func(s transfer.SessionID, again bool, want int) {
				t.Helper()
				user++
				step(transfer.Submit{Session: s, UserData: user, Op: &transfer.OfferOp{Key: fmt.Append(nil, user), Token: anyToken, Again: again, Blocks: someBlocks(uint32(user), 1)}})
				if said != want {
					t.Errorf("resumed %v, the daemon ends %v: after submission %d it was said %d times, want %d", resumed, stops, user, said, want)
				}
			}
			ranks := func(id transfer.SessionID, rank uint32) {
				step(transfer.SessionOpened{Session: id, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: rank, TPWorld: 2, Credits: 1000, Resumed: true})
				step(transfer.LayoutSet{Session: id, Layout: oneRank(t)})
			}
			step(transfer.Awaited{For: 60 * transfer.Second, Sessions: []transfer.AwaitedSession{
				{Engine: "e", Instance: "i", Role: transfer.Worker, Rank: 0, Layout: true}, {Engine: "e", Instance: "i", Role: transfer.Worker, Rank: 1, Layout: true}}})
			ranks(worker, 0)
			step(transfer.SessionOpened{Session: scheduler, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000, Resumed: resumed})
			submits(scheduler, true, 0)
			submits(scheduler, false, 0)
			if stops {
				step(transfer.Drain{Stop: true})
				ranks(late, 1)
				submits(scheduler, false, 0)
				continue
			}
			once := map[bool]int{true: 1}[resumed]
			ranks(late, 1) // and both begin
			submits(scheduler, false, once)
			submits(worker, false, once)
		}
	}
}

// TestMemoryThatNoLayoutNamesIsDrainedAtOnce: nothing can touch it, and its engine waits for that word.
func TestMemoryThatNoLayoutNamesIsDrainedAtOnce(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 100})
	m.Step(1, transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
	for _, ev := range []transfer.Event{
		transfer.RegionInvalidated{Session: 1, Region: 77}, transfer.RegionInvalidated{Session: 1, Region: 77}, transfer.RegionRemoved{Session: 1, Region: 77},
	} {
		drained := 0
		for _, e := range m.Step(1, ev) {
			if e == (transfer.RegionDrained{Session: 1, Region: 77}) {
				drained++
			}
		}
		if drained != 1 {
			t.Errorf("%T: drained %d times", ev, drained)
		}
	}
	for _, e := range m.Step(1, transfer.Submit{Session: 1, UserData: 1, Op: schedOffer("k")}) {
		if c, ok := e.(transfer.Complete); ok {
			t.Errorf("an offer of other memory ended: %+v", c)
		}
	}
}

// TestMemoryOfNoLayoutIsNobodysLoss: what a scheduler brings along to this daemon begins although a rank has given up memory here of which its
// layout says nothing: no operation is about that.
func TestMemoryOfNoLayoutIsNobodysLoss(t *testing.T) {
	const scheduler, worker = 1, 2
	e := newEnds(t, nil)
	e.step(transfer.SessionOpened{Session: worker, Engine: "e", Instance: "i", Role: transfer.Worker, Credits: 1000, Resumed: true})
	e.step(transfer.LayoutSet{Session: worker, Layout: oneRank(t)})
	e.step(transfer.RegionInvalidated{Session: worker, Region: 2})
	e.step(transfer.SessionOpened{Session: scheduler, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000, Resumed: true})
	e.runs(e.submit(scheduler, &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Blocks: someBlocks(0, 1), Again: true}))
	e.keeps(scheduler, 1)
}
