package peer

import (
	"strings"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/test/cluster"
)

// A daemon that crashes costs the other nothing but the channel, which heals by itself, again and again.
func TestAKilledDaemonIsReachedAgainAfterItsRestart(t *testing.T) {
	c := cluster.New(t)
	b := c.Node("b").Start()
	a := c.Node("a", b).Start()
	consumer := join(a, "decode")
	for range 3 {
		producer := join(b, "prefill")
		for _, n := range sizes {
			handOver(producer, consumer, "b", n)
		}
		epoch := a.Peer("b").Epoch
		b.Kill()
		cluster.Eventually(t, "a notices", func() bool { return a.Peer("b").State != "up" })

		// A take that comes while the peer is down waits for it, by name and by address.
		consumer.submitTake("later-1", "b")
		consumer.submitTake("later-2", b.Addr)
		b.Start()
		producer = join(b, "prefill")
		producer.submitOffer("later-1")
		producer.submitOffer("later-2")
		consumer.collect(2)
		producer.collect(2)
		if p := a.Peer("b"); p.State != "up" || p.Epoch == epoch {
			t.Errorf("a's peer b: %+v, before %d", p, epoch)
		}
		producer.Kill()
	}
	a.Stop()
	a.Calm("data link") // a link may be seen to end before its channel, when a daemon is killed
}

// The side that did not open the channel crashes less visibly for the other: it does not dial.
func TestAKilledDialerComesBack(t *testing.T) {
	c := cluster.New(t)
	b := c.Node("b").Start()
	a := c.Node("a", b).Start()
	producer := join(b, "prefill")
	for range 3 {
		consumer := join(a, "decode")
		handOver(producer, consumer, "b", blocks)
		handOver(consumer, producer, "a", blocks)
		a.Kill()
		a.Start() // at once: b may not have noticed
	}
}

// Neither reset nor end of stream tells of a process that stands still: the heartbeats do. When it goes on, so do hand-overs.
func TestADaemonThatStandsStillIsGivenUpAndComesBack(t *testing.T) {
	c := cluster.New(t)
	b := c.Node("b").Start()
	a := c.Node("a", b).Start()
	producer, consumer := join(b, "prefill"), join(a, "decode")
	for range 2 {
		handOver(producer, consumer, "b", blocks)
		if err := b.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		cluster.Eventually(t, "a gives b up", func() bool { return a.Peer("b").State != "up" })
		a.Says("peer down", "silent for")
		if err := b.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	handOver(producer, consumer, "b", blocks)
}

// What a client is told when nobody answers: at its deadline, with the reason why not.
func TestAPeerThatStaysDownIsNamed(t *testing.T) {
	c := cluster.New(t)
	b := c.Node("b")
	a := c.Node("a", b).Start()
	e := join(a, "decode")
	e.submitTake("another", "b")
	cluster.Eventually(t, "a has dialed b", func() bool { return strings.Contains(a.Peer("b").Problem, "refused") })
	user, err := e.Submit(&transfer.TakeOp{Key: []byte("k"), Token: token, Peer: "b", TakeID: 2, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 2e9, Blocks: list(1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := e.WaitFor(user)
	if err != nil {
		t.Fatal(err)
	}
	if got.Status != uint16(transfer.Failed) || !cluster.HasAll(got.Text, []string{`"b"`, b.Addr, "refused"}) {
		t.Errorf("status %d, %+v", got.Status, got.Cause())
	}
	if p := a.Peer("b"); p.State == "up" || !cluster.HasAll(p.Problem, []string{"refused"}) {
		t.Errorf("%+v", p)
	}
}
