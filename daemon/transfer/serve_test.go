package transfer_test

import (
	"math"
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// refused returns why the last step refused a take; OK: it did not. again: it may ask later.
func (a *asker) refused(x transfer.XferID) (why transfer.Reason, again bool) {
	for _, m := range a.said {
		if r, ok := m.(*transfer.MsgRefuse); ok && r.Xfer == x {
			return r.Cause.Reason, r.Retry > 0
		}
	}
	return transfer.OK, false
}

// TestPartsThatCannotBe: a peer's numbers are not believed.
func TestPartsThatCannotBe(t *testing.T) {
	b := offered(t, 1)
	for i, p := range []struct{ part, parts int }{{0, 0}, {0, -1}, {-1, 1}, {1, 1}, {0, 257}} {
		x := transfer.XferID(i + 1)
		b.asksFor(x, "f", "1", 7, p.part, p.parts)
		if why, again := b.refused(x); why != transfer.Invalid || again {
			t.Errorf("part %d of %d: %s, want it refused as invalid", p.part, p.parts, why)
		}
	}
	b.asksFor(10, "f", "1", 7, 255, 256)
	b.begins(10)
	b.asksFor(11, "f", "1", 7, 0, 2)
	if why, _ := b.refused(11); why != transfer.Invalid {
		t.Errorf("a take of 256 parts that has 2 as well: %s, want it refused as invalid", why)
	}
}

// TestADeadlineOfAPeerIsBounded: a take runs until its own, OfferWait or not, and for no longer than MaxTimeout.
func TestADeadlineOfAPeerIsBounded(t *testing.T) {
	const bound = 3600 * transfer.Second
	for _, c := range []struct{ says, until transfer.Time }{{100 * transfer.Second, 100 * transfer.Second}, {math.MaxInt64, bound}} {
		b := offered(t, 1)
		l := oneRank(t)
		b.says(layoutMsg(l))
		msg := takeOf(1, l)
		msg.Deadline = c.says
		b.says(msg)
		b.begins(1)
		if b.later(c.until); len(b.fences) > 0 {
			t.Errorf("a take with %d s left is ended before", c.says/transfer.Second)
		}
		if b.later(3 * transfer.Second); len(b.fences) != 1 {
			t.Errorf("a take with %d s left is not ended soon after", c.says/transfer.Second)
		}
	}
}

// TestTakesThatWaitAreBounded: for each node.
func TestTakesThatWaitAreBounded(t *testing.T) {
	b := newAsker(t, 0).site("b", 1) // which keeps 3
	for x := transfer.XferID(1); x <= 3; x++ {
		b.asksFor(x, "f", "1", uint64(x), 0, 1)
		b.waits(x)
	}
	b.asksFor(4, "f", "1", 4, 0, 1)
	if why, again := b.refused(4); why != transfer.Quota || !again {
		t.Errorf("a take too many: %s, want it to ask again", why)
	}
	b.fails(1)
	b.asksFor(4, "f", "1", 4, 0, 1)
	b.waits(4)
}

// TestWhoAsksAgainIsInterested: the lease is counted from the last time, and from no later one once the take is over.
func TestWhoAsksAgainIsInterested(t *testing.T) {
	for _, waits := range []bool{true, false} {
		b := offered(t, 1) // for a minute
		if waits {
			b.asksFor(1, "g", "1", 7, 0, 1)
		}
		x := transfer.XferID(2)
		b.asksFor(x, "f", "1", 7, 0, 1)
		b.later(5 * transfer.Second)
		b.asksFor(x, "f", "1", 7, 0, 1)
		b.fails(x)
		b.fails(1)
		for _, leg := range b.fences {
			b.step(transfer.Fenced{Leg: leg})
		}
		b.later(59 * transfer.Second)
		if len(b.m.Snapshot().Offers) == 0 {
			t.Error("the lease ran out in the minute after who takes had asked again")
		}
		b.later(2 * transfer.Second)
		if len(b.m.Snapshot().Offers) > 0 {
			t.Error("nobody asked for a minute, and the offer stands")
		}
	}
}

// TestALateCopyOfATakeBeginsNothing: neither of one that went through nor of one that failed.
func TestALateCopyOfATakeBeginsNothing(t *testing.T) {
	b := offered(t, 3)
	b.takes(1, "f", "1", 7, 0, 1)
	b.asksFor(2, "g", "1", 7, 0, 1)
	b.fails(2)
	b.step(transfer.Fenced{Leg: transfer.Leg{Peer: "b", Epoch: 1, Xfer: 2, End: transfer.Producer}})
	b.later(9 * transfer.Second)
	for x, engine := range map[transfer.XferID]string{1: "f", 2: "g"} {
		b.asksFor(x, engine, "1", 7, 0, 1)
		if why, again := b.refused(x); why == transfer.OK || again || len(b.begun) > 0 {
			t.Errorf("a copy of take %d: %s, %v were begun", x, why, b.begun)
		}
	}
}

// TestACommitRecordOfAnotherOfferDoesNotCount: what was taken is not what lies here.
func TestACommitRecordOfAnotherOfferDoesNotCount(t *testing.T) {
	b := offered(t, 1)
	b.asksFor(1, "f", "1", 7, 0, 1)
	b.begins(1)
	if !b.has(1, 12345) {
		t.Error("the offer ended with a commit record of another one")
	}
	if b.takes(2, "g", "1", 7, 0, 1) {
		t.Error("the offer is taken, and it stands")
	}
}

// TestAnAbortedTakeIsRememberedForItsTime: however late its copy comes, it does not begin in another offer under the key.
func TestAnAbortedTakeIsRememberedForItsTime(t *testing.T) {
	b := offered(t, 1)
	l := oneRank(t)
	b.says(layoutMsg(l))
	msg := takeOf(1, l)
	msg.Deadline = 100 * transfer.Second
	b.says(msg)
	b.begins(1)
	b.step(transfer.Submit{Session: 1, UserData: 51, Op: &transfer.WithdrawOp{Target: 50}})
	b.step(transfer.Fenced{Leg: b.fences[0]})
	b.offers(1)
	b.later(30 * transfer.Second)
	b.later(25 * transfer.Second)
	b.says(layoutMsg(l))
	b.says(msg)
	if why, _ := b.refused(1); why == transfer.OK || len(b.begun) > 0 {
		t.Errorf("the copy is answered %s, and %v were begun", why, b.begun)
	}
	b.later(100 * transfer.Second)
	for range 3 {
		if b.later(transfer.Second); len(b.said) > 0 {
			t.Errorf("the take is over for long, and b is told %+v", b.said)
		}
	}
}

// TestAnAbortIsRepeatedUntilItIsAnswered: ever more seldom.
func TestAnAbortIsRepeatedUntilItIsAnswered(t *testing.T) {
	b := offered(t, 1)
	b.asksFor(1, "f", "1", 7, 0, 1)
	b.step(transfer.Submit{Session: 1, UserData: 51, Op: &transfer.WithdrawOp{Target: 50}})
	b.step(transfer.Fenced{Leg: b.fences[0]})
	for _, wait := range []transfer.Time{1, 2} {
		if b.later(wait * transfer.Second); len(b.said) != 1 {
			t.Errorf("%d s later b was told %+v, want the abort again", wait, b.said)
		}
	}
	b.fails(1)
	for range 9 {
		if b.later(transfer.Second); len(b.said) != 0 {
			t.Errorf("b has answered, and was told %+v", b.said)
		}
	}
}

// TestAnEndThatIsFasterThanItsTake: what it ends does not begin after it.
func TestAnEndThatIsFasterThanItsTake(t *testing.T) {
	b := offered(t, 1)
	b.fails(9)
	b.asksFor(9, "f", "1", 7, 0, 1)
	if why, again := b.refused(9); why != transfer.Expired || again || len(b.begun) > 0 {
		t.Errorf("the take is answered %s, and %v were begun", why, b.begun)
	}
}

// TestAGrantIsRepeated: until it is answered, ever more seldom.
func TestAGrantIsRepeated(t *testing.T) {
	b := offered(t, 1)
	b.asksFor(1, "f", "1", 7, 0, 1)
	b.plans(1)
	for _, wait := range []transfer.Time{1, 1, 2} {
		b.later(wait * transfer.Second)
		if !slices.ContainsFunc(b.said, func(m transfer.Msg) bool { _, ok := m.(*transfer.MsgGrant); return ok }) {
			t.Errorf("%d s later b was told %+v, want the grant again", wait, b.said)
		}
	}
}

// TestAnOfferSaysWhetherItIsAllOfItsEngine: only then must every block that is asked for have a source here.
func TestAnOfferSaysWhetherItIsAllOfItsEngine(t *testing.T) {
	for _, of := range [][2]uint32{{1, 1}, {0, 0}, {2, 1}, {1, 2}, {0, 2}} {
		a, world := newAsker(t, 0), max(of[0], 1)*max(of[1], 1)
		a.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, TPWorld: of[0], PPWorld: of[1], Credits: 1000})
		a.step(transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
		a.step(transfer.Submit{Session: 1, UserData: 50, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Sealed: true, Blocks: someBlocks(0, 1)}})
		l := oneRank(t)
		a.asks(layoutMsg(l))
		for _, e := range a.m.Step(a.now, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: takeOf(1, l)}) {
			if p, ok := e.(transfer.MakePlan); ok && p.Whole != (world == 1) {
				t.Errorf("1 of %d ranks is here, and the plan is whole: %v", world, p.Whole)
			}
		}
		a.plans(1)
		for _, msg := range a.said {
			if g, ok := msg.(*transfer.MsgGrant); ok && g.Whole != (world == 1) {
				t.Errorf("1 of %d ranks is here, and the grant is whole: %v", world, g.Whole)
			}
		}
		if a.granted() == 0 {
			t.Error("nothing was granted")
		}
	}
}

// TestWhoAsksAgainHearsThatItWaits: the word that it does may have been lost.
func TestWhoAsksAgainHearsThatItWaits(t *testing.T) {
	a := newAsker(t, 0)
	b := site{a, "b", 1}
	for range 2 {
		b.asksFor(1, "f", "1", 7, 0, 1)
		b.waits(1)
	}
}

// TestAnAbortedPartLeavesOnce: when its consumer says that it is over before it is fenced, the other parts still count as under way.
func TestAnAbortedPartLeavesOnce(t *testing.T) {
	b := offered(t, 1)
	leg, _ := b.part(1, "1", 7, 0, 2)
	b.part(2, "1", 7, 1, 2)
	b.says(&transfer.MsgGo{Xfer: 1})
	b.step(transfer.SliceSent{Key: transfer.SliceKey{Leg: leg}, Cause: transfer.Cause{Reason: transfer.Corrupt, Text: "a device error"}})
	b.fails(1)
	b.step(transfer.Fenced{Leg: leg})
	b.asksFor(3, "g", "1", 7, 0, 1)
	b.waits(3)
}

// TestWhatWasReadIsNotGrantedAfterTheEnd: the consumer may have given its blocks to others.
func TestWhatWasReadIsNotGrantedAfterTheEnd(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: 1, End: transfer.Producer}
	a.step(transfer.Planned{Leg: leg, Slices: 1, Bytes: 64, Inline: true, Transport: "tcp"})
	a.asks(&transfer.MsgEnd{Xfer: 1, Status: transfer.WasCancelled})
	if a.step(transfer.InlineRead{Leg: leg, Data: make([]byte, 64)}); a.granted() != 0 {
		t.Errorf("b was told %+v", a.said)
	}
}

// TestThatAllWasSentIsSaidAgain: until the consumer says how its take ended.
func TestThatAllWasSentIsSaidAgain(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	leg := a.plans(1)
	a.asks(&transfer.MsgGo{Xfer: 1})
	a.step(transfer.SliceSent{Key: transfer.SliceKey{Leg: leg}})
	for range 2 {
		if !a.saysAll() {
			t.Errorf("b was told %+v", a.said)
		}
		a.later(2 * transfer.Second)
	}
}

// TestWhoWaitedForOthersInVainHearsSo: after as long as an offer is waited for, when the take itself has more time.
func TestWhoWaitedForOthersInVainHearsSo(t *testing.T) {
	b := offered(t, 1)
	b.says(layoutMsg(oneRank(t)))
	for x, engine := range []string{"", "f", "g"} {
		if x > 0 {
			msg := takeOf(transfer.XferID(x), oneRank(t))
			msg.Engine, msg.Deadline = engine, 600*transfer.Second
			b.says(msg)
		}
	}
	b.waits(2)
	for range 29 {
		if b.later(transfer.Second); len(b.begun) > 0 {
			t.Fatalf("%v begin", b.begun)
		}
	}
	b.later(transfer.Second)
	if why, again := b.refused(2); why != transfer.Busy || again {
		t.Errorf("refused for %s, again: %v; b was told %+v", why, again, b.said)
	}
}

// TestATakeThatBeginsDoesNotWait: also one that had waited for its layouts, and is asked for again when they are here.
func TestATakeThatBeginsDoesNotWait(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(2)
	l := oneRank(t)
	a.asks(takeOf(1, l))
	if n := a.m.ParkedAt("k"); n != 1 {
		t.Fatalf("%d takes wait, want 1", n)
	}
	for _, msg := range []transfer.Msg{layoutMsg(l), takeOf(1, l)} {
		a.asks(msg)
	}
	a.plans(1)
	if n := a.m.ParkedAt("k"); n != 0 || a.granted() == 0 {
		t.Errorf("%d takes wait, and b was told %+v", n, a.said)
	}
}

// TestAPlanThatCannotBeMadeIsTheEnd: the consumer hears why, once nothing is read any more.
func TestAPlanThatCannotBeMadeIsTheEnd(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: 1, End: transfer.Producer}
	a.step(transfer.Planned{Leg: leg, Cause: transfer.Cause{Reason: transfer.Unavailable, Text: "no transport"}})
	if len(a.fences) != 1 || len(a.said) > 0 {
		t.Fatalf("%v are fenced, and b was told %+v", a.fences, a.said)
	}
	a.step(transfer.Fenced{Leg: leg})
	if len(a.said) == 1 {
		if abort, ok := a.said[0].(*transfer.MsgAbort); ok && abort.Cause.Reason == transfer.Unavailable && abort.Cause.Text == "no transport" {
			return
		}
	}
	t.Errorf("b was told %+v", a.said)
}

// TestRanksAreInTheirOrder: whichever of them came first.
func TestRanksAreInTheirOrder(t *testing.T) {
	a, l := newAsker(t, 0), oneRank(t)
	for i, rank := range []uint32{2, 0, 1} {
		s := transfer.SessionID(10 + i)
		a.step(transfer.SessionOpened{Session: s, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: rank, TPWorld: 3, Credits: 100})
		a.step(transfer.LayoutSet{Session: s, Layout: l})
	}
	a.step(transfer.SessionOpened{Session: 1, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 100})
	a.step(transfer.Submit{Session: 1, UserData: 1, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Sealed: true, Blocks: someBlocks(0, 1)}})
	a.asks(layoutMsg(l))
	var ranks []uint32
	for _, e := range a.m.Step(a.now, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: takeOf(1, l)}) {
		if p, ok := e.(transfer.MakePlan); ok {
			for _, r := range p.Producer {
				ranks = append(ranks, r.Rank)
			}
		}
	}
	if len(ranks) != 3 || ranks[0] != 0 || ranks[1] != 1 || ranks[2] != 2 {
		t.Errorf("the plan is of ranks %v", ranks)
	}
}
