package peer

import (
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

func (n *node) heardAck(xfer uint64) {
	n.t.Helper()
	wait(n, func(e transfer.PeerMsg) bool {
		ack, ok := e.Msg.(*transfer.MsgEndAck)
		return ok && uint64(ack.Xfer) == xfer
	})
}

// patient nodes send nothing by themselves.
func patient(c *Config) { c.late, c.Heartbeat, c.IdleClose = time.Hour, time.Hour, 0 }

func TestAnAckThatFindsNoCompanyTravelsAlone(t *testing.T) {
	c := newCluster(t)
	a, b := c.node("a", nil), c.node("b", nil)
	a.knows(b)
	epoch := met(a, b)
	for i := range uint64(3) { // also after the first was sent
		a.Send("b", epoch, &transfer.MsgEndAck{Xfer: transfer.XferID(i + 1)})
		b.heardAck(i + 1)
	}
}

func TestAnAckRidesWithTheNextMessage(t *testing.T) {
	c := newCluster(t)
	a, b := c.node("a", patient), c.node("b", patient)
	a.knows(b)
	epoch := met(a, b)
	a.Send("b", epoch, &transfer.MsgEndAck{Xfer: 1})
	ch := a.channelOf("b")
	ch.mu.Lock()
	left := len(ch.out)
	ch.mu.Unlock()
	if left == 0 {
		t.Error("the acknowledgement was sent by itself")
	}
	a.Send("b", epoch, &transfer.MsgGo{Xfer: 2})
	b.heardAck(1)
	wait(b, func(e transfer.PeerMsg) bool { m, ok := e.Msg.(*transfer.MsgGo); return ok && m.Xfer == 2 })
}

// TestAnEndThatOthersFollowRides: the one that nothing follows goes at once, and takes those before it along.
func TestAnEndThatOthersFollowRides(t *testing.T) {
	c := newCluster(t)
	a, b := c.node("a", patient), c.node("b", patient)
	a.knows(b)
	met(a, b)
	ch := a.channelOf("b")
	ch.wmu.Lock() // nothing is written meanwhile, whenever it is due
	late := ch.rides(&transfer.MsgEnd{Xfer: 1, Status: transfer.Done}, true)
	if push := ch.enqueue(&transfer.MsgEnd{Xfer: 1, Status: transfer.Done}, true); push || late == 0 || late > moreWait {
		t.Errorf("one that others follow: written at once %v, after %v", push, late)
	}
	if push := ch.enqueue(&transfer.MsgEnd{Xfer: 2, Status: transfer.Done}, false); !push {
		t.Error("one that nothing follows waits")
	}
	ch.wmu.Unlock()
	ch.push()
	for i := range transfer.XferID(2) {
		wait(b, func(e transfer.PeerMsg) bool { m, ok := e.Msg.(*transfer.MsgEnd); return ok && m.Xfer == i+1 })
	}
}

// TestAnEndThatNothingFollowsAfterAllTravelsAlone: what was to follow failed.
func TestAnEndThatNothingFollowsAfterAllTravelsAlone(t *testing.T) {
	c := newCluster(t)
	a, b := c.node("a", patient), c.node("b", patient)
	a.knows(b)
	epoch := met(a, b)
	a.Send("b", epoch, &transfer.MsgEndAck{Xfer: 1}) // for which there is an hour
	a.Queue("b", epoch, &transfer.MsgEnd{Xfer: 2, Status: transfer.Done}, true)
	a.Flush()
	b.heardAck(1)
	wait(b, func(e transfer.PeerMsg) bool { m, ok := e.Msg.(*transfer.MsgEnd); return ok && m.Xfer == 2 })
}

func TestAcksDoNotPileUp(t *testing.T) {
	c := newCluster(t)
	a, b := c.node("a", patient), c.node("b", patient)
	a.knows(b)
	epoch := met(a, b)
	for i := range uint64(lateMost) {
		a.Send("b", epoch, &transfer.MsgEndAck{Xfer: transfer.XferID(i + 1)})
	}
	b.heardAck(1)
}
