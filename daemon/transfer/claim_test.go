package transfer_test

import (
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
