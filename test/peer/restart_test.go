package peer

import (
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// A daemon that crashes costs the other nothing but the channel, which heals by itself, again and again.
func TestAKilledDaemonIsReachedAgainAfterItsRestart(t *testing.T) {
	c := newCluster(t)
	b := c.node("b").start()
	a := c.node("a", b).start()
	consumer := a.join("decode")
	for range 3 {
		producer := b.join("prefill")
		for _, n := range sizes {
			handOver(producer, consumer, "b", n)
		}
		epoch := a.peer("b").Epoch
		b.kill()
		eventually(t, "a notices", func() bool { return a.peer("b").State != "up" })

		// A take that comes while the peer is down waits for it, by name and by address.
		consumer.submitTake("later-1", "b")
		consumer.submitTake("later-2", b.addr)
		b.start()
		producer = b.join("prefill")
		producer.submitOffer("later-1")
		producer.submitOffer("later-2")
		consumer.collect(2)
		producer.collect(2)
		if p := a.peer("b"); p.State != "up" || p.Epoch == epoch {
			t.Errorf("a's peer b: %+v, before %d", p, epoch)
		}
		producer.Kill()
	}
	a.stop()
	a.calm("data link") // a link may be seen to end before its channel, when a daemon is killed
}

// The side that did not open the channel crashes less visibly for the other: it does not dial.
func TestAKilledDialerComesBack(t *testing.T) {
	c := newCluster(t)
	b := c.node("b").start()
	a := c.node("a", b).start()
	producer := b.join("prefill")
	for range 3 {
		consumer := a.join("decode")
		handOver(producer, consumer, "b", blocks)
		handOver(consumer, producer, "a", blocks)
		a.kill()
		a.start() // at once: b may not have noticed
	}
}

// Neither reset nor end of stream tells of a process that stands still: the heartbeats do. When it goes on, so do hand-overs.
func TestADaemonThatStandsStillIsGivenUpAndComesBack(t *testing.T) {
	c := newCluster(t)
	b := c.node("b").start()
	a := c.node("a", b).start()
	producer, consumer := b.join("prefill"), a.join("decode")
	for range 2 {
		handOver(producer, consumer, "b", blocks)
		if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a gives b up", func() bool { return a.peer("b").State != "up" })
		a.says("peer down", "silent for")
		if err := b.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	handOver(producer, consumer, "b", blocks)
}

// What a client is told when nobody answers: at its deadline, with the reason why not.
func TestAPeerThatStaysDownIsNamed(t *testing.T) {
	c := newCluster(t)
	b := c.node("b")
	a := c.node("a", b).start()
	e := a.join("decode")
	user, err := e.Submit(&transfer.TakeOp{Key: []byte("k"), Token: token, Peer: "b", TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 5e8, Blocks: list(1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := e.WaitFor(user)
	if err != nil {
		t.Fatal(err)
	}
	if got.Status != uint16(transfer.Failed) || !hasAll(got.Text, []string{`"b"`, b.addr, "refused"}) {
		t.Errorf("status %d, %+v", got.Status, got.Cause())
	}
	if p := a.peer("b"); p.State == "up" || !hasAll(p.Problem, []string{"refused"}) {
		t.Errorf("%+v", p)
	}
}
