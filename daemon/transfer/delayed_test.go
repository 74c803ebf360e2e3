package transfer_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestDelayedLimits: what a session has waiting for ranks that are not back after a restart is bounded, in number and in block ids; and
// what ends while it waits makes room.
func TestDelayedLimits(t *testing.T) {
	const start, minute = transfer.Time(1), 60 * transfer.Second
	ids := make([]uint32, layout.MaxIDs)
	big := func(timeout transfer.Time) transfer.Op {
		return &transfer.TakeOp{Key: []byte("k"), Timeout: timeout, Blocks: []layout.BlockList{{NTokens: layout.MaxIDs, IDs: ids}}}
	}
	for _, c := range []struct {
		name string
		op   func(timeout transfer.Time) transfer.Op
		fit  int
		text string
	}{
		{"block ids", big, 16, "this session has 16777216 block ids in what it offers, takes, puts and gets, with these 1048576, the limit is limits.block_ids = 16777216: " +
			"wait until some of that has ended, or withdraw offers, or raise that"},
		{"submissions", func(timeout transfer.Time) transfer.Op { return &transfer.TakeOp{Key: []byte("k"), Timeout: timeout} }, 65536,
			`this session has 65536 submissions that wait for 1 ranks after the restart of the daemon of node "a", the limit: wait until the ranks are back`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }, MaxBlockIDs: 16 * layout.MaxIDs})
			m.Step(start, transfer.Awaited{Sessions: []transfer.AwaitedSession{{Engine: "e", Instance: "i", Role: transfer.Worker, Layout: true}}, For: minute})
			m.Step(start, transfer.SessionOpened{Session: 1, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000})
			user := uint64(0)
			submit := func(op transfer.Op) []transfer.Effect {
				user++
				return m.Step(start, transfer.Submit{Session: 1, UserData: user, Op: op})
			}
			for i := range c.fit {
				timeout := minute
				if i < 3 {
					timeout = transfer.Second
				}
				if end := ended(submit(c.op(timeout))); len(end) != 0 {
					t.Fatalf("submission %d: %+v", i, end)
				}
			}
			end := ended(submit(c.op(minute)))
			if len(end) != 1 || end[0].Reason != transfer.Quota || end[0].Text != c.text {
				t.Fatalf("one too many: %+v, want %q", end, c.text)
			}
			if end := ended(m.Step(start+transfer.Second, transfer.Tick{})); len(end) != 3 || end[0].Reason != transfer.Timeout {
				t.Fatalf("at the deadline of three: %+v", end)
			}
			if end := ended(submit(c.op(minute))); len(end) != 0 {
				t.Errorf("there is room again: %+v", end)
			}
		})
	}
}

// TestDelayedIDsCountWithTheRest: what waits is shown with what runs, and what is too large by itself is told that the limit has to be another.
func TestDelayedIDsCountWithTheRest(t *testing.T) {
	e := &ends{tb: t, now: 1, m: transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }, MaxBlockIDs: 8})}
	e.step(transfer.SessionOpened{Session: 2, Engine: "e", Instance: "i", Role: transfer.Worker, TPWorld: 2, Credits: 1000})
	e.step(transfer.LayoutSet{Session: 2, Layout: oneRank(t)})
	e.step(transfer.SessionOpened{Session: 1, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000})
	e.runs(e.offer(1, "runs", 0, 3))
	e.keeps(1, 3)
	e.step(transfer.Awaited{Sessions: []transfer.AwaitedSession{{Engine: "e", Instance: "i", Role: transfer.Worker, Rank: 1, Layout: true}}, For: 60 * transfer.Second})
	const limit = ", the limit is limits.block_ids = 8: wait until some of that has ended, or withdraw offers, or raise that"
	e.runs(e.offer(1, "waits", 10, 4))
	e.keeps(1, 7)
	e.is(e.take(1, "too many", "b", 20, 2), transfer.Failed, transfer.Quota, "this session has 7 block ids in what it offers, takes, puts and gets, with these 2"+limit)
	e.is(e.take(1, "too large", "b", 20, 9), transfer.Failed, transfer.Quota, "this session has 7 block ids in what it offers, takes, puts and gets, with these 9"+limit)
	e.runs(e.take(1, "fits", "b", 20, 1))
	e.keeps(1, 8)
	e.step(transfer.SessionOpened{Session: 3, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: 1, TPWorld: 2, Credits: 1000, Resumed: true})
	e.step(transfer.LayoutSet{Session: 3, Layout: oneRank(t)})
	e.keeps(1, 8)
}

// TestEndingWhatIsDelayedCostsLittle, and so does asking for a key of which an offer has ended: however much waits for ranks that are not back.
func TestEndingWhatIsDelayedCostsLittle(t *testing.T) {
	cost := func(waiting int, op func(i uint64) transfer.Op, by transfer.SessionID) time.Duration {
		m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 << 32 }})
		m.Step(1, transfer.Awaited{Sessions: []transfer.AwaitedSession{{Engine: "e", Instance: "i", Role: transfer.Worker, Layout: true}}, For: 60 * transfer.Second})
		m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1 << 20})
		m.Step(1, transfer.SessionOpened{Session: 2, Engine: "f", Role: transfer.Worker, Credits: 1 << 20})
		m.Step(1, transfer.LayoutSet{Session: 2, Layout: oneRank(t)})
		m.Step(1, transfer.Submit{Session: 2, UserData: 1, Op: &transfer.OfferOp{Key: []byte("ended"), Token: anyToken, Sealed: true, Blocks: someBlocks(0, 1)}})
		m.Step(1, transfer.Submit{Session: 2, UserData: 2, Op: &transfer.WithdrawOp{Target: 1}})
		for i := range waiting {
			m.Step(1, transfer.Submit{Session: 1, UserData: 1<<40 + uint64(i), Op: &transfer.OfferOp{Key: fmt.Appendf(nil, "key %d", i), Token: anyToken}})
		}
		user := uint64(2)
		return leastOf10(func(int) func() {
			return func() {
				for range 200 {
					user++
					m.Step(1, transfer.Submit{Session: by, UserData: user, Op: op(user)})
				}
			}
		})
	}
	for name, c := range map[string]struct {
		by transfer.SessionID
		op func(i uint64) transfer.Op
	}{
		"cancels of what is over": {1, func(uint64) transfer.Op { return &transfer.CancelOp{Target: 1} }},
		"takes of what has ended": {2, func(i uint64) transfer.Op {
			return &transfer.TakeOp{Key: []byte("ended"), Token: anyToken, TakeID: i, LayerSlot: transfer.NoSlot, Blocks: someBlocks(1, 1)}
		}},
	} {
		if alone, among := cost(1, c.op, c.by), cost(60000, c.op, c.by); among > 100*alone {
			t.Errorf("200 %s take %v, and %v while 60000 offers wait for their ranks", name, alone, among)
		}
	}
}

// TestWhatIsDelayedEndsOnce: at its deadline, or with its session, and not again when the ranks are back.
func TestWhatIsDelayedEndsOnce(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	m.Step(1, transfer.Awaited{Sessions: []transfer.AwaitedSession{{Engine: "e", Instance: "i", Role: transfer.Worker, Layout: true}}, For: 60 * transfer.Second})
	m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000})
	take := func(user uint64, timeout transfer.Time) {
		m.Step(1, transfer.Submit{Session: 1, UserData: user, Op: &transfer.TakeOp{
			Key: []byte("k"), Token: anyToken, TakeID: user, LayerSlot: transfer.NoSlot, Timeout: timeout, Blocks: someBlocks(uint32(user), 1),
		}})
	}
	take(1, transfer.Second)
	take(2, 30*transfer.Second)
	take(3, 2*transfer.Second)
	if end := ended(m.Step(transfer.Second+1, transfer.Tick{})); len(end) != 1 || end[0].UserData != 1 {
		t.Fatalf("at the deadline of the first: %+v", end)
	}
	back := ended(m.Step(transfer.Second+2, transfer.SessionOpened{Session: 2, Engine: "e", Instance: "i", Role: transfer.Worker, Credits: 1000, Resumed: true}))
	back = append(back, ended(m.Step(transfer.Second+3, transfer.LayoutSet{Session: 2, Layout: oneRank(t)}))...)
	if len(back) != 0 || len(m.Snapshot().Transfers) == 0 {
		t.Errorf("the rank is back: %+v ended, and %+v run", back, m.Snapshot().Transfers)
	}

	m = transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	m.Step(1, transfer.Awaited{Sessions: []transfer.AwaitedSession{{Engine: "e", Instance: "i", Role: transfer.Worker, Layout: true}}, For: 60 * transfer.Second})
	m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000})
	take(1, transfer.Second)
	m.Step(2, transfer.SessionClosed{Session: 1})
	if end := ended(m.Step(2*transfer.Second, transfer.Tick{})); len(end) != 0 {
		t.Errorf("the session is closed, and hears of %+v", end)
	}
}

// TestAnOfferWaitsForRanksOfBefore a restart, and names them in their order, whoever is back first.
func TestAnOfferWaitsForRanksOfBefore(t *testing.T) {
	a := newAsker(t, 0)
	a.step(transfer.Awaited{Sessions: []transfer.AwaitedSession{{Engine: "e", Instance: "i", Role: transfer.Worker, Layout: true}}, For: 60 * transfer.Second})
	back := func(s transfer.SessionID, rank uint32) (planned []uint32) {
		a.step(transfer.SessionOpened{Session: s, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: rank, TPWorld: 2, Credits: 1000, Resumed: true})
		a.step(transfer.LayoutSet{Session: s, Layout: oneRank(t)})
		for _, e := range a.m.Step(a.now, transfer.Submit{Session: s, UserData: 50, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Sealed: true, Blocks: someBlocks(0, 1)}}) {
			if p, ok := e.(transfer.MakePlan); ok {
				for _, r := range p.Producer {
					planned = append(planned, r.Rank)
				}
			}
		}
		return planned
	}
	b := a.site("b", 1)
	back(1, 1)
	b.asksFor(1, "f", "1", 7, 0, 1)
	b.waits(1)
	if got := back(2, 0); !slices.Equal(got, []uint32{0, 1}) {
		t.Errorf("the take is planned from ranks %d, want both, in order", got)
	}
}

func ended(effects []transfer.Effect) (out []transfer.Complete) {
	for _, e := range effects {
		if c, ok := e.(transfer.Complete); ok {
			out = append(out, c)
		}
	}
	return out
}

// TestWhatWaitedEndsOnce: a take that waited for a rank has one deadline, and one end at it, once it runs.
func TestWhatWaitedEndsOnce(t *testing.T) {
	r := comeBack(t, transfer.SessionOpened{Resumed: true}, 0)
	take := schedTake(1)
	take.Timeout = 2 * transfer.Second
	r.runs(r.submit(take))
	r.runs(r.rank(transfer.SessionOpened{Resumed: true}, 0))
	r.waits(false)
	ends := 0
	for range 5 {
		r.now += transfer.Second
		for _, c := range r.step(transfer.Tick{}) {
			if c.Session == schedID {
				ends++
			}
		}
	}
	if ends != 1 {
		t.Errorf("the take ended %d times", ends)
	}
}

// TestWhatWaitsIsAsOldAsItIs: however many of the ranks came back meanwhile.
func TestWhatWaitsIsAsOldAsItIs(t *testing.T) {
	r := comeBack(t, transfer.SessionOpened{Resumed: true}, 0, 1)
	take := schedTake(1)
	take.Timeout = 3 * transfer.Second
	r.runs(r.submit(take))
	r.now += transfer.Second
	r.runs(r.rank(transfer.SessionOpened{Resumed: true}, 0))
	r.now += 2 * transfer.Second
	r.refused(r.step(transfer.Tick{}), transfer.Timeout, "1 ranks of engine \"e\" did not come back within 3s after the restart")
}
