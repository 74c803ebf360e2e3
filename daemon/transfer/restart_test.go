package transfer_test

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// returning is a machine after a restart, with what a scheduler asks for. The engine is of two ranks.
type returning struct {
	t    *testing.T
	m    *transfer.Machine
	now  transfer.Time
	user uint64
}

const schedID transfer.SessionID = 1

// comeBack awaits these ranks; the scheduler is there, and says so much of itself.
func comeBack(t *testing.T, sched transfer.SessionOpened, ranks ...uint32) *returning {
	r := &returning{t: t, m: transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }}), now: 1}
	var ev transfer.Awaited
	ev.For = 10 * transfer.Second
	ev.Sessions = append(ev.Sessions, transfer.AwaitedSession{Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank})
	for _, rank := range ranks {
		ev.Sessions = append(ev.Sessions, transfer.AwaitedSession{Engine: "e", Instance: "i", Role: transfer.Worker, Rank: rank, Layout: true})
	}
	r.step(ev)
	sched.Session, sched.Engine, sched.Instance, sched.Role, sched.Rank, sched.Credits = schedID, "e", "i", transfer.Scheduler, transfer.NoRank, 1000
	r.step(sched)
	return r
}

func (r *returning) step(ev transfer.Event) []transfer.Complete {
	r.now++
	return ended(r.m.Step(r.now, ev))
}

// rank opens a worker's session, which says so much of itself, and sets its layout.
func (r *returning) rank(ev transfer.SessionOpened, rank uint32) []transfer.Complete {
	ev.Session, ev.Engine, ev.Instance, ev.Role, ev.Rank, ev.TPWorld, ev.Credits = transfer.SessionID(10+rank), "e", "i", transfer.Worker, rank, 2, 1000
	return append(r.step(ev), r.step(transfer.LayoutSet{Session: ev.Session, Layout: oneRank(r.t)})...)
}

func (r *returning) submit(op transfer.Op) []transfer.Complete {
	r.user++
	return r.step(transfer.Submit{Session: schedID, UserData: r.user, Op: op})
}

// refused checks that this is the end of one operation, for that reason.
func (r *returning) refused(end []transfer.Complete, reason transfer.Reason, text string) {
	r.t.Helper()
	if len(end) != 1 || end[0].Status != transfer.Failed || end[0].Reason != reason || !strings.Contains(end[0].Text, text) {
		r.t.Errorf("ended: %+v, want one, %v: %s", end, reason, text)
	}
}

func (r *returning) runs(end []transfer.Complete) {
	r.t.Helper()
	if len(end) != 0 {
		r.t.Errorf("ended: %+v", end)
	}
}

// waits checks whether the scheduler's take still waits for ranks to come back.
func (r *returning) waits(want bool) {
	r.t.Helper()
	if got := len(r.m.Snapshot().Transfers) == 0; got != want {
		r.t.Errorf("the take waits for its ranks: %v, want %v", got, want)
	}
}

func schedOffer(key string) *transfer.OfferOp {
	return &transfer.OfferOp{Key: []byte(key), Token: anyToken, Sealed: true, Lease: 60 * transfer.Second, Blocks: someBlocks(0, 1)}
}

func schedTake(id uint64) *transfer.TakeOp {
	return &transfer.TakeOp{Key: []byte("other"), Token: anyToken, TakeID: id, LayerSlot: transfer.NoSlot, Timeout: 60 * transfer.Second, Blocks: someBlocks(9, 1)}
}

// TestARankThatDoesNotComeBackIsMissing: what waited for it after a restart is not done with the others alone.
func TestARankThatDoesNotComeBackIsMissing(t *testing.T) {
	r := comeBack(t, transfer.SessionOpened{}, 0, 1)
	r.runs(r.rank(transfer.SessionOpened{}, 0))
	r.runs(r.submit(schedTake(1)))
	r.now += 10 * transfer.Second
	r.refused(r.step(transfer.Tick{}), transfer.Unavailable, `rank 1 of engine "e" has left node "a"`)
	r.refused(r.submit(schedOffer("k")), transfer.Unavailable, `rank 1 of engine "e" has left node "a"`)
	r.runs(r.rank(transfer.SessionOpened{}, 1)) // late, but here
	r.runs(r.submit(schedTake(2)))
}

// TestARankThatHadLeftBeforeTheRestartIsMissing: as it was before.
func TestARankThatHadLeftBeforeTheRestartIsMissing(t *testing.T) {
	r := comeBack(t, transfer.SessionOpened{Had: []uint32{0, 1}}, 0)
	r.runs(r.rank(transfer.SessionOpened{Had: []uint32{0, 1}}, 0))
	r.refused(r.submit(schedTake(1)), transfer.Unavailable, `rank 1 of engine "e" has left node "a"`)
	r.refused(r.submit(schedOffer("k")), transfer.Unavailable, `rank 1 of engine "e" has left node "a"`)
	r.runs(r.rank(transfer.SessionOpened{Had: []uint32{0, 1}}, 1))
	r.runs(r.submit(schedTake(2)))
}

// TestANodeThatStoodStillHearsThoseAtItsDoor: the time of a rank that said HELLO meanwhile is not over before that is read; and it is over some time.
func TestANodeThatStoodStillHearsThoseAtItsDoor(t *testing.T) {
	for _, comes := range []bool{true, false} {
		r := comeBack(t, transfer.SessionOpened{Resumed: true}, 0, 1)
		r.runs(r.rank(transfer.SessionOpened{Resumed: true}, 0))
		r.runs(r.submit(schedTake(1)))
		r.now += 11 * transfer.Second // of which it was to wait 10
		r.runs(r.step(transfer.Tick{}))
		r.waits(true)
		if comes {
			r.runs(r.rank(transfer.SessionOpened{Resumed: true}, 1))
			r.waits(false)
			continue
		}
		r.now += transfer.Second + transfer.Second/200
		r.refused(r.step(transfer.Tick{}), transfer.Unavailable, `rank 1 of engine "e" has left node "a"`)
	}
}

// TestAnEndOfAPipeIsNobodyWhoIsAwaited: it has its engine's name, and no instance. What waits for a rank waits on.
func TestAnEndOfAPipeIsNobodyWhoIsAwaited(t *testing.T) {
	resumed := transfer.SessionOpened{Resumed: true}
	r := comeBack(t, resumed, 0, 1)
	r.runs(r.rank(resumed, 0))
	r.runs(r.submit(schedTake(1)))
	r.runs(r.step(transfer.SessionOpened{Session: 20, Engine: "e", Role: transfer.Endpoint, Credits: 10}))
	r.runs(r.step(transfer.LayoutSet{Session: 20, Layout: arena(t, 4)}))
	r.runs(r.step(transfer.SessionClosed{Session: 20, Cause: transfer.Cause{Reason: transfer.Closed}}))
	r.waits(true)
	r.runs(r.rank(resumed, 1))
	r.waits(false)
}

// TestWhoIsToldToGoIsNotBack: a rank is back with the layout of the session that stays, and not of one in whose place that came.
func TestWhoIsToldToGoIsNotBack(t *testing.T) {
	resumed := transfer.SessionOpened{Resumed: true}
	r := comeBack(t, resumed, 0, 1)
	r.runs(r.rank(resumed, 0))
	r.runs(r.submit(schedTake(1)))
	const goes, stays = 20, 21
	for _, id := range []transfer.SessionID{goes, stays} {
		r.runs(r.step(transfer.SessionOpened{Session: id, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: 1, TPWorld: 2, Resumed: true, Credits: 10}))
	}
	r.runs(r.step(transfer.LayoutSet{Session: goes, Layout: oneRank(t)}))
	r.waits(true)
	r.runs(r.step(transfer.LayoutSet{Session: stays, Layout: oneRank(t)}))
	r.waits(false)
}

// TestWhatWasAskedOfAnotherRankIsRefused: after a restart, what a scheduler asks for again is about the ranks that were there before, and not
// about who came in the place of one: whether before the restart, after it, or before the scheduler is back.
func TestWhatWasAskedOfAnotherRankIsRefused(t *testing.T) {
	const other = `engine "e" has another session of one of its ranks on node "a" than this was about`
	const unclear = `node "a" cannot tell which ranks of engine "e" this was about: it was restarted since, and did not expect this session any more`
	again := func() (*transfer.OfferOp, *transfer.TakeOp) {
		offer, take := schedOffer("k"), schedTake(1)
		offer.Again, take.Again = true, true
		return offer, take
	}
	resumed := transfer.SessionOpened{Resumed: true}
	for _, c := range []struct {
		name   string
		sched  transfer.SessionOpened
		second transfer.SessionOpened
		text   string
	}{
		{"all are back", resumed, resumed, ""},
		{"replaced after the restart", resumed, transfer.SessionOpened{}, other},
		{"replaced before", transfer.SessionOpened{Resumed: true, Changed: true}, resumed, other},
		{"a scheduler that was not expected any more", transfer.SessionOpened{}, resumed, unclear},
	} {
		for _, first := range []bool{true, false} { // the scheduler asks before its ranks are back
			r := comeBack(t, c.sched, 0, 1)
			offer, take := again()
			r.runs(r.rank(resumed, 0))
			var end []transfer.Complete
			if first {
				r.runs(r.submit(offer))
				r.runs(r.submit(take))
				end = r.rank(c.second, 1)
			} else {
				r.runs(r.rank(c.second, 1))
				end = append(r.submit(offer), r.submit(take)...)
			}
			if c.text == "" {
				r.runs(end)
				continue
			}
			if len(end) != 2 {
				t.Fatalf("%s, %v: ended: %+v", c.name, first, end)
			}
			r.refused(end[:1], transfer.Restarted, c.text)
			r.refused(end[1:], transfer.Restarted, c.text)
			r.runs(r.submit(schedOffer("k"))) // about those that are here
			r.runs(r.submit(schedTake(2)))
		}
	}
}

// TestNoRestartIsMadeUp: what was read at the moment in which a worker came is marked before the machine hears of the worker. Nothing was
// restarted, and the client is not told that something was.
func TestNoRestartIsMadeUp(t *testing.T) {
	r := &returning{t: t, m: transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }}), now: 1}
	r.rank(transfer.SessionOpened{}, 0)
	r.step(transfer.SessionOpened{Session: schedID, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000})
	offer := schedOffer("k")
	transfer.OfBefore(offer)
	r.refused(r.submit(offer), transfer.Restarted, "or another worker came just as it was read; submit it again for those that are here")
}

// TestWhatWaitsForARankIsNotForItsSuccessor: also what was first asked for while the rank was awaited.
func TestWhatWaitsForARankIsNotForItsSuccessor(t *testing.T) {
	r := comeBack(t, transfer.SessionOpened{}, 0, 1)
	r.runs(r.rank(transfer.SessionOpened{Resumed: true}, 0))
	r.runs(r.submit(schedOffer("k")))
	r.refused(r.rank(transfer.SessionOpened{}, 1), transfer.Restarted, "than this was about")
	r.runs(r.submit(schedOffer("k")))
}

// TestARankOffersItsOwnAgain: it knows what is in its memory, whoever else is new.
func TestARankOffersItsOwnAgain(t *testing.T) {
	r := comeBack(t, transfer.SessionOpened{Resumed: true}, 0, 1)
	r.runs(r.rank(transfer.SessionOpened{}, 1))
	r.runs(r.rank(transfer.SessionOpened{}, 0))
	offer := schedOffer("k")
	offer.Again = true
	r.runs(r.step(transfer.Submit{Session: 10, UserData: 1, Op: offer}))
}

// TestRanksHearOfATakeThatEndedWithTheDaemon: whoever of them is there, when others have left or do not come back, and
// when this daemon begins nothing more.
func TestRanksHearOfATakeThatEndedWithTheDaemon(t *testing.T) {
	notice := func() *transfer.TakeOp {
		take := schedTake(1)
		take.Again, take.Restarted = true, true
		return take
	}
	told := func(what string, end []transfer.Complete) {
		t.Helper()
		if len(end) != 2 || end[0].Session != schedID || end[1].Session != 10 || end[1].Status != transfer.Failed || end[1].Reason != transfer.Restarted || len(end[1].Failed) == 0 {
			t.Errorf("%s: ended: %+v", what, end)
		}
	}
	resumed := transfer.SessionOpened{Resumed: true, Had: []uint32{0, 1}}

	r := comeBack(t, resumed, 0)
	r.runs(r.rank(resumed, 0))
	told("a rank had left", r.submit(notice()))

	r = comeBack(t, resumed, 0, 1)
	r.runs(r.rank(resumed, 0))
	r.runs(r.submit(notice()))
	r.now += 10 * transfer.Second
	told("a rank does not come back", r.step(transfer.Tick{}))

	r = comeBack(t, resumed, 0)
	r.runs(r.rank(resumed, 0))
	r.step(transfer.Drain{})
	told("the daemon drains", r.submit(notice()))
}

// TestARankWaitsForNoOther: what it asks for itself after a restart begins although others of its engine are not back.
func TestARankWaitsForNoOther(t *testing.T) {
	r := comeBack(t, transfer.SessionOpened{}, 0, 1)
	r.runs(r.rank(transfer.SessionOpened{}, 0))
	r.runs(r.step(transfer.Submit{Session: 10, UserData: 1, Op: schedTake(1)}))
	r.waits(false)
}

// TestARankAloneHearsOfItsTake that failed with the daemon before: the others of its engine had nothing to do with it.
func TestARankAloneHearsOfItsTake(t *testing.T) {
	r := comeBack(t, transfer.SessionOpened{}, 0, 1)
	r.runs(r.rank(transfer.SessionOpened{}, 0))
	r.runs(r.rank(transfer.SessionOpened{}, 1))
	take := schedTake(1)
	take.Restarted = true
	end := r.step(transfer.Submit{Session: 11, UserData: 1, Op: take})
	r.refused(end, transfer.Restarted, "was restarted while bytes were granted")
	if len(end) == 1 && end[0].Session != 11 {
		t.Errorf("session %d heard of it", end[0].Session)
	}
}

// TestAnInstanceThatWasReplacedDoesNotComeBack: its session is told to go, and the newer instance goes on.
func TestAnInstanceThatWasReplacedDoesNotComeBack(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	told := map[transfer.SessionID]transfer.Cause{}
	for id, instance := range []string{"", "i", "j", "i"} {
		if id == 0 {
			continue
		}
		for _, e := range m.Step(1, transfer.SessionOpened{Session: transfer.SessionID(id), Engine: "e", Instance: instance, Role: transfer.Worker, Credits: 100}) {
			if end, ok := e.(transfer.EndSession); ok {
				told[end.Session] = end.Cause
			}
		}
	}
	if len(told) != 2 || told[1].Reason != transfer.Closed || told[3].Reason != transfer.Closed || !strings.Contains(told[3].Text, `instance "i" of engine "e" was replaced by a newer one`) {
		t.Errorf("told to go were %+v, want sessions 1 and 3", told)
	}
}

// TestWhatStopsStillEndsWhatItBegan: a daemon that is about to end leaves nothing to the next one of what acts on an operation that it knows.
func TestWhatStopsStillEndsWhatItBegan(t *testing.T) {
	for _, end := range []func(target uint64) transfer.Op{
		func(target uint64) transfer.Op { return &transfer.CancelOp{Target: target} },
		func(target uint64) transfer.Op { return &transfer.WithdrawOp{Target: target} },
		func(target uint64) transfer.Op { return &transfer.SealOp{Target: target} },
		func(target uint64) transfer.Op { return &transfer.ExtendOp{Target: target, Sealed: true} },
	} {
		e := idsOfSessions(t, nil)
		offer := e.submit(1, &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Blocks: someBlocks(0, 1)})
		e.step(transfer.Drain{Stop: true})
		e.isDone(e.submit(1, end(offer)))
		e.runs(e.submit(1, end(1000)))
	}
}

// TestWhoIsToldToGoIsNoRankAnyMore: what a scheduler offers from then on is of the session that came in its place.
func TestWhoIsToldToGoIsNoRankAnyMore(t *testing.T) {
	e := newEnds(t, nil)
	for s := transfer.SessionID(1); s <= 2; s++ { // of one rank
		e.step(transfer.SessionOpened{Session: s, Engine: "e", Instance: "i", Role: transfer.Worker, Credits: 100})
		e.step(transfer.LayoutSet{Session: s, Layout: oneRank(t)})
	}
	e.step(transfer.SessionOpened{Session: 3, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 100})
	offer := e.offer(3, "k", 0, 1)
	if n := e.m.Snapshot().HoldsShared; n != 1 {
		t.Errorf("one block of one rank is offered, and %d are held", n)
	}
	e.step(transfer.SessionClosed{Session: 1, Cause: transfer.Cause{Reason: transfer.Closed, Text: "closed"}})
	e.runs(offer)
}

// TestWhoLeavesLongAfterTheRestartIsNotAwaited: only those that are given up as the daemon begins come again by the name of before.
func TestWhoLeavesLongAfterTheRestartIsNotAwaited(t *testing.T) {
	r := comeBack(t, transfer.SessionOpened{Resumed: true}, 0, 1)
	r.runs(r.rank(transfer.SessionOpened{Resumed: true}, 0))
	r.runs(r.rank(transfer.SessionOpened{Resumed: true}, 1))
	r.now += 20 * transfer.Second
	r.runs(r.step(transfer.Tick{}))
	r.runs(r.step(transfer.SessionClosed{Session: 11, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "its connection is lost"}}))
	r.refused(r.submit(schedTake(1)), transfer.Unavailable, `rank 1 of engine "e" has left node "a"`)
}

// TestATakeOfBeforeIsRefusedOnce: where there is no room to tell that it failed, that is its end.
func TestATakeOfBeforeIsRefusedOnce(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: transfer.MostCompletions - 1})
	m.Step(1, transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
	take := schedTake(1)
	take.Restarted = true
	for range 2 {
		end := ended(m.Step(1, transfer.Submit{Session: 1, UserData: 1, Op: take}))
		if len(end) != 1 || end[0].Reason != transfer.Quota {
			t.Errorf("it ended %+v", end)
		}
		m.Step(1, transfer.CreditsReturned{Session: 1, N: 1})
	}
}

// TestASessionIsToldToGoOnce: however many come in its place while it has not gone.
func TestASessionIsToldToGoOnce(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	told := map[transfer.SessionID]int{}
	for s := transfer.SessionID(1); s <= 4; s++ { // of one rank
		for _, e := range m.Step(1, transfer.SessionOpened{Session: s, Engine: "e", Instance: "i", Role: transfer.Worker, Credits: 100}) {
			if end, ok := e.(transfer.EndSession); ok {
				told[end.Session]++
			}
		}
	}
	if len(told) != 3 || told[1] != 1 || told[2] != 1 || told[3] != 1 {
		t.Errorf("told to go were %v, want each but the last, once", told)
	}
}

// TestOnlyItsOwnerBringsASessionBack: whoever else names the engine, the instance and the rank is another engine, and no newer instance of this one.
func TestOnlyItsOwnerBringsASessionBack(t *testing.T) {
	r := comeBack(t, transfer.SessionOpened{Resumed: true}, 0, 1)
	r.runs(r.rank(transfer.SessionOpened{Resumed: true}, 0))
	r.runs(r.submit(schedTake(1)))
	for s, instance := range map[transfer.SessionID]string{50: "i", 51: "j"} {
		r.runs(r.step(transfer.SessionOpened{Session: s, Engine: "e", Owner: "another", Instance: instance, Role: transfer.Worker, Rank: 1, TPWorld: 2, Credits: 100}))
		r.runs(r.step(transfer.LayoutSet{Session: s, Layout: oneRank(t)}))
		r.waits(true)
	}
	r.runs(r.rank(transfer.SessionOpened{Resumed: true}, 1))
	r.waits(false)
}

// TestHowLongATakeWaitsForAnOfferOfBefore: as long as those are awaited who may bring it; once the last of them is back, for a second from then on,
// but never longer than they would have been awaited. Where nobody is awaited, as long as ever.
func TestHowLongATakeWaitsForAnOfferOfBefore(t *testing.T) {
	const wait, most = transfer.Second / 2, 10 * transfer.Second
	for name, c := range map[string]struct {
		awaited bool
		back    transfer.Time // 0: it does not come
		until   transfer.Time
	}{
		"nobody is awaited":                         {until: wait},
		"who is awaited does not come":              {awaited: true, until: most},
		"it comes soon":                             {awaited: true, back: 2 * transfer.Second, until: 3 * transfer.Second},
		"it comes when its time is as good as over": {awaited: true, back: most - wait, until: most},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnds(t, func(c *transfer.Config) { c.OfferWait = wait })
			began, ev := e.now, transfer.Awaited{For: most}
			if c.awaited {
				ev.Sessions = []transfer.AwaitedSession{{Engine: "p", Instance: "i", Role: transfer.Worker}}
			}
			e.step(ev)
			e.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1000})
			e.step(transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
			if c.back > 0 {
				e.pass(began + c.back - e.now)
				e.step(transfer.SessionOpened{Session: 2, Engine: "p", Instance: "i", Role: transfer.Worker, Credits: 1000, Resumed: true})
			}
			take := e.submit(1, &transfer.TakeOp{Key: []byte("k"), Token: anyToken, TakeID: 1, LayerSlot: transfer.NoSlot, Timeout: 60 * transfer.Second, Blocks: someBlocks(0, 1)})
			e.pass(began + c.until - transfer.Second/100 - e.now)
			e.runs(take)
			e.pass(transfer.Second / 50)
			e.is(take, transfer.Failed, transfer.NotFound, "is unknown")
		})
	}
}
