package transfer_test

import (
	"runtime"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// takes has engine of node b take all that is offered, and says whether its owner hears that it is consumed.
func (a *asker) takes(x transfer.XferID, engine string) (consumed bool) {
	a.tb.Helper()
	l := oneRank(a.tb)
	a.asks(layoutMsg(l))
	msg := takeOf(x, l)
	msg.Engine, msg.Instance = engine, engine
	a.asks(msg)
	a.begins(x)
	leg := a.plans(x)
	a.asks(&transfer.MsgEnd{Xfer: x, Status: transfer.Done, Incarnation: a.granted()})
	for _, e := range a.m.Step(a.now, transfer.Fenced{Leg: leg}) {
		if c, ok := e.(transfer.Complete); ok && c.Kind == transfer.KindOffer && c.Status == transfer.Done {
			consumed = true
		}
	}
	return consumed
}

// TestAnEngineThatTakesAgainRobsNobody: an offer serves so many engines, however often each of them takes.
func TestAnEngineThatTakesAgainRobsNobody(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(2)
	for x := range transfer.XferID(300) {
		if a.takes(x+1, "f") {
			t.Fatalf("take %d by the same engine ends an offer for two", x+1)
		}
	}
	if n := a.m.Snapshot().Offers[0].Consumed; n != 1 {
		t.Errorf("%d engines have taken, want 1", n)
	}
	if !a.takes(1000, "g") {
		t.Error("both engines have taken, and the offer has not ended")
	}
}

// TestATakeCostsNoCopyOfTheOthers: thousands of transfers of an offer may wait for its blocks, and one more of them takes no more memory than
// the first ones did.
func TestATakeCostsNoCopyOfTheOthers(t *testing.T) {
	const many, few = 4000, 100
	e := newEnds(t, func(c *transfer.Config) { c.AtOnce = 0 })
	for id, engine := range map[transfer.SessionID]string{1: "e", 2: "f"} {
		e.step(transfer.SessionOpened{Session: id, Engine: engine, Role: transfer.Worker, Credits: 65536})
		e.step(transfer.LayoutSet{Session: id, Layout: arena(t, many+2*few)})
	}
	e.submit(1, &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Sealed: true, After: 1, Blocks: blocksOf(0, block)})
	begun := uint32(0)
	take := func(n int) (bytes uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			e.submit(2, &transfer.TakeOp{Key: []byte("k"), Token: anyToken, TakeID: e.users + 1, LayerSlot: transfer.NoSlot, Blocks: blocksOf(begun, block)})
			begun++
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(n)
	}
	take(few)
	first := take(few)
	take(many - 3*few)
	if last := take(few); last > 4*first {
		t.Errorf("a take among %d takes %d bytes, and took %d among %d", many, last, first, few)
	}
	if n := e.m.Waits(1); n != many {
		t.Fatalf("%d transfers wait for the offer's blocks, want %d", n, many)
	}
}
