package sim

import (
	"fmt"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// An engine may span nodes: some of its ranks live on each, and take from their own node's daemon. A scheduler's session is about the ranks
// of the first node. It is one engine all the same: when one of its processes or a daemon takes ranks along, all of them start anew.

// addSpread starts an engine on several nodes.
func (c *Cluster) addSpread() *Engine {
	r := &c.rng
	s := shape{sched: r.hit(40), split: pick(r, []string{"tp", "pp", "ppp", "ppp"}), blockSize: pick(r, []int{2, 4}), hnd: r.hit(50), model: "m"}
	nodes := slices.Clone(c.nodes)
	for len(nodes) > s.ranks() || len(nodes) > 2 && r.hit(50) {
		k := r.n(len(nodes))
		nodes = slices.Delete(nodes, k, k+1)
	}
	return c.addEngine(nodes[0], fmt.Sprintf("e%d", len(c.engines)), s, nodes[1:]...)
}

func (e *Engine) spans() bool { return len(e.nodes) > 1 }

// at is where a session lives.
func (e *Engine) at(role transfer.Role, rank int) *Node {
	if role != transfer.Worker {
		return e.node
	}
	return e.nodes[rank*len(e.nodes)/e.shape.ranks()]
}

// gather: an engine starts when all its nodes are up, and its older processes are gone by then.
func (e *Engine) gather() bool {
	for _, n := range e.nodes {
		if !n.up {
			e.down = true
			e.c.after(50*ms, func() {
				if e.down {
					e.start()
				}
			})
			return false
		}
	}
	e.killRest(e.all())
	return true
}

// later plans something for the engine: its node's next daemon does not know of it.
func (e *Engine) later(d transfer.Time, do func()) {
	if e.spans() {
		e.c.after(d, do)
		return
	}
	e.node.later(d, do)
}
