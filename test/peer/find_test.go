package peer

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Both sizes of hand-over: one that rides inside control messages, and one over data links.
var sizes = []int{1, blocks}

func TestTakesFindTheirPeerByNameAndByAddress(t *testing.T) {
	c := newCluster(t)
	b := c.node("b").start()
	a := c.node("a", b).start()
	producer, consumer := b.join("prefill"), a.join("decode")
	for _, hint := range []string{"b", b.addr, "[::ffff:" + strings.Replace(b.addr, ":", "]:", 1)} {
		for _, n := range sizes {
			handOver(producer, consumer, hint, n)
		}
	}
	if p := a.peer("b"); p.State != "up" || !p.Secure || !p.Dialed || p.Links == 0 || p.Transport != "tcp" {
		t.Errorf("a's peer b: %+v", p)
	}
	// b was told of no peer, and takes back over the channel that a opened.
	for _, n := range sizes {
		handOver(consumer, producer, "a", n)
		handOver(consumer, producer, a.addr, n)
	}
	if p := b.peer("a"); p.State != "up" || p.Dialed || p.Epoch != a.peer("b").Epoch {
		t.Errorf("b's peer a: %+v", p)
	}
	a.stop()
	b.stop()
	a.calm()
	b.calm()
}

// A consumer may be on the producer's node without knowing it.
func TestATakeAtTheNodesOwnAddressStaysAtHome(t *testing.T) {
	a := newCluster(t).node("a").start()
	producer, consumer := a.join("prefill"), a.join("decode")
	for _, n := range sizes {
		handOver(producer, consumer, a.addr, n)
		handOver(producer, consumer, "a", n)
	}
	a.stop()
	a.calm()
}

func TestHintsOutsideAllowAreDenied(t *testing.T) {
	c := newCluster(t)
	b := c.node("b").start()
	a := c.node("a")
	a.args = append(a.args, "--peer", "wrong="+b.addr, "--peer", "down=127.0.0.1:9")
	a.start()
	e := a.join("decode")
	e.refused("192.0.2.1:7650", transfer.Denied, "192.0.2.1:7650", "peers.allow")
	e.refused("nobody", transfer.NotFound, `"nobody"`, "known: down, wrong", "peers.nodes")
	e.refused("wrong", transfer.Denied, `node "b" answers there, not "wrong"`)
	e.refused("10.0.0.1:http", transfer.Invalid, "port")
}

func TestAStrangerIsNotTalkedTo(t *testing.T) {
	ours, theirs := newCluster(t), newCluster(t)
	b := theirs.node("b").start()
	a := ours.node("a", b).start()
	a.join("decode").refused("b", transfer.Denied, "certificate", b.addr)
	b.says("connection refused")
	if p := b.peer("a"); p.State != "" {
		t.Errorf("b's peer a: %+v", p)
	}
}

// Three that all dial each other at once, from cold.
func TestATriangleOfDaemons(t *testing.T) {
	c := newCluster(t)
	all := []*node{c.node("a"), c.node("b"), c.node("c")}
	for _, n := range all {
		for _, o := range all {
			if n != o {
				n.knows(o)
			}
		}
		n.launch()
	}
	var engines []*engine
	for _, n := range all {
		n.says("msg=ready")
		engines = append(engines, n.join("engine-"+n.name))
	}
	// Everybody offers, then everybody takes from everybody, at the same time.
	done := make(chan *engine)
	for i, e := range engines {
		for j, o := range engines {
			if i != j {
				e.submitOffer("from-" + e.n.name + "-to-" + o.n.name)
			}
		}
	}
	for i, e := range engines {
		go func() {
			defer func() { done <- e }()
			for j, o := range engines {
				if i != j {
					e.submitTake("from-"+o.n.name+"-to-"+e.n.name, o.n.name)
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
			if n != o && (n.peer(o.name).Epoch == 0 || n.peer(o.name).Epoch != o.peer(n.name).Epoch) {
				t.Errorf("%s and %s do not agree: %+v, %+v", n.name, o.name, n.peer(o.name), o.peer(n.name))
			}
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
		Key: []byte(key), Token: token, Peer: peer, TakeID: e.serial, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: transfer.Time(patience), Blocks: where,
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
			e.t.Errorf("node %s: operation %d of %d: %+v, %v", e.n.name, i, n, c, err)
			return
		}
	}
}
