package peer

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/test/cluster"
)

// Both sizes of hand-over: one that rides inside control messages, and one over data links.
var sizes = []int{1, blocks}

func TestTakesFindTheirPeerByNameAndByAddress(t *testing.T) {
	c := cluster.New(t)
	b := c.Node("b").Start()
	a := c.Node("a", b).Start()
	producer, consumer := join(b, "prefill"), join(a, "decode")
	for _, hint := range []string{"b", b.Addr, "[::ffff:" + strings.Replace(b.Addr, ":", "]:", 1)} {
		for _, n := range sizes {
			handOver(producer, consumer, hint, n)
		}
	}
	if p := a.Peer("b"); p.State != "up" || !p.Secure || !p.Dialed || p.Links == 0 || p.Transport != "tcp" {
		t.Errorf("a's peer b: %+v", p)
	}
	// b was told of no peer, and takes back over the channel that a opened.
	for _, n := range sizes {
		handOver(consumer, producer, "a", n)
		handOver(consumer, producer, a.Addr, n)
	}
	if p := b.Peer("a"); p.State != "up" || p.Dialed || p.Epoch != a.Peer("b").Epoch {
		t.Errorf("b's peer a: %+v", p)
	}
	a.Stop()
	b.Stop()
	a.Calm()
	b.Calm("data link") // a link may be seen to end before its channel, when a busy machine lets its reader wait
}

// A consumer may be on the producer's node without knowing it.
func TestATakeAtTheNodesOwnAddressStaysAtHome(t *testing.T) {
	a := cluster.New(t).Node("a").Start()
	producer, consumer := join(a, "prefill"), join(a, "decode")
	for _, n := range sizes {
		handOver(producer, consumer, a.Addr, n)
		handOver(producer, consumer, "a", n)
	}
	a.Stop()
	a.Calm()
}

func TestHintsOutsideAllowAreDenied(t *testing.T) {
	c := cluster.New(t)
	b := c.Node("b").Start()
	a := c.Node("a")
	a.Args = append(a.Args, "--peer", "wrong="+b.Addr, "--peer", "down=127.0.0.1:9")
	a.Start()
	e := join(a, "decode")
	e.refused("192.0.2.1:7650", transfer.Denied, "192.0.2.1:7650", "peers.allow")
	e.refused("nobody", transfer.NotFound, `"nobody"`, "known: down, wrong", "peers.nodes")
	e.refused("wrong", transfer.Denied, `node "b" answers there, not "wrong"`)
	e.refused("10.0.0.1:http", transfer.Invalid, "port")
}

func TestAStrangerIsNotTalkedTo(t *testing.T) {
	ours, theirs := cluster.New(t), cluster.New(t)
	b := theirs.Node("b").Start()
	a := ours.Node("a", b).Start()
	join(a, "decode").refused("b", transfer.Denied, "certificate", b.Addr)
	b.Says("connection refused")
	if p := b.Peer("a"); p.State != "" {
		t.Errorf("b's peer a: %+v", p)
	}
}

// Three that all dial each other at once, from cold.
func TestATriangleOfDaemons(t *testing.T) {
	c := cluster.New(t)
	all := []*cluster.Node{c.Node("a"), c.Node("b"), c.Node("c")}
	for _, n := range all {
		for _, o := range all {
			if n != o {
				n.Knows(o)
			}
		}
		n.Launch()
	}
	var engines []*engine
	for _, n := range all {
		n.Says("msg=ready")
		engines = append(engines, join(n, "engine-"+n.Name))
	}
	// Everybody offers, then everybody takes from everybody, at the same time.
	done := make(chan *engine)
	for i, e := range engines {
		for j, o := range engines {
			if i != j {
				e.submitOffer("from-" + e.n.Name + "-to-" + o.n.Name)
			}
		}
	}
	for i, e := range engines {
		go func() {
			defer func() { done <- e }()
			for j, o := range engines {
				if i != j {
					e.submitTake("from-"+o.n.Name+"-to-"+e.n.Name, o.n.Name)
				}
			}
			e.collect(4)
		}()
	}
	for range engines {
		<-done
	}
	for _, n := range all {
		for _, o := range all {
			if n == o {
				continue
			}
			cluster.Eventually(t, n.Name+" and "+o.Name+" agree on a channel", func() bool { // one may replace another still
				epoch := n.Peer(o.Name).Epoch
				return epoch != 0 && epoch == o.Peer(n.Name).Epoch
			})
		}
	}
}

// submitOffer offers one block, the key's own.
func (e *engine) submitOffer(key string) {
	if _, err := e.Submit(&transfer.OfferOp{Key: []byte(key), Token: token, Consumers: 1, Sealed: true, Lease: 60e9, Blocks: list(1, 1)}); err != nil {
		e.t.Error(err)
	}
}

// submitTake takes one block into one that no take of the engine before had.
func (e *engine) submitTake(key, peer string) {
	e.serial++
	where := list(1, 1)
	where[0].IDs[0] = uint32(e.serial % blocks)
	_, err := e.Submit(&transfer.TakeOp{
		Key: []byte(key), Token: token, Peer: peer, TakeID: e.serial, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: transfer.Time(cluster.Patience), Blocks: where,
	})
	if err != nil {
		e.t.Error(err)
	}
}

// collect waits for n operations to be done.
func (e *engine) collect(n int) {
	for i := range n {
		c, err := e.Wait()
		if err != nil || c.Status != uint16(transfer.Done) {
			e.t.Errorf("node %s: operation %d of %d: %+v, %v", e.n.Name, i, n, c, err)
			return
		}
	}
}
