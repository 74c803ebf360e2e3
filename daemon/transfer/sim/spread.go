package sim

import (
	"fmt"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// An engine may span nodes: some of its ranks live on each, and take from their own node's daemon. A scheduler's
// session is about the ranks of the first node only. It is still one engine: what its ranks take are parts of one
// take, and when a daemon goes and takes all of the engine on its node along, all ranks start anew. Single ranks die
// and are replaced like those of an engine on one node. Each daemon judges by itself who comes, so for a while one
// may have the next instance when another still has the one before.

// addSpread starts an engine on several nodes.
func (c *Cluster) addSpread() *Engine {
	r := &c.rng
	s := shape{sched: r.hit(40), split: pick(r, []string{"tp", "pp", "ppp", "ppp"}), blockSize: pick(r, []int{2, 4}), hnd: r.hit(50), model: "m"}
	nodes := slices.DeleteFunc(slices.Clone(c.nodes), func(n *Node) bool { return n.mad != nil }) // takes there cannot be checked
	for len(nodes) > s.ranks() || len(nodes) > 2 && r.hit(50) {
		k := r.n(len(nodes))
		nodes = slices.Delete(nodes, k, k+1)
	}
	return c.addEngine(nodes[0], fmt.Sprintf("e%d", len(c.engines)), s, nodes[1:]...)
}

func (e *Engine) spans() bool { return len(e.nodes) > 1 }

// called is how a broken promise names the engine.
func (e *Engine) called() string {
	if e.spans() {
		return fmt.Sprintf("%s on %d nodes", e.name, len(e.nodes))
	}
	return e.name
}

// at returns the node where a session lives.
func (e *Engine) at(role transfer.Role, rank int) *Node {
	if role != transfer.Worker {
		return e.node
	}
	return e.nodes[rank*len(e.nodes)/e.shape.ranks()]
}

// comes opens a new session. Those of an engine on several nodes do not all come at once, and where there is no
// daemon they come once there is.
func (s *Session) comes() {
	c := s.eng.c
	if !s.eng.spans() && c.now >= s.node.still || c.fixed {
		s.come()
		return
	}
	s.away = true
	late := transfer.Time(0)
	if c.rng.hit(30) {
		late = c.rng.span(0, 400*ms)
	}
	c.after(late, s.come)
}

func (s *Session) come() {
	n, c := s.node, s.eng.c
	switch {
	case !s.open:
	case s.passedOver():
		s.kill("another is in its place")
	case !n.up || c.now < n.still || n.draining && s.eng.spans():
		c.after(c.rng.span(20*ms, 200*ms), s.come)
	default:
		n.lastID++
		s.away, s.id = false, n.lastID
		n.sessions[s.id] = s
		n.later(0, s.enter)
	}
}

// absent says whether the session is new, and no daemon has heard of it yet, perhaps because the one that was asked stands
// still: kvpipe_connect has not returned.
func (s *Session) absent() bool { return s.open && !s.entered }

// unheardOf says whether no daemon has ever heard of the session, which may also be over: none knows that its engine has such a rank.
func (s *Session) unheardOf() bool { return !s.entered }

// stays says whether a process of the engine lives on the node.
func (e *Engine) stays(n *Node) bool {
	return slices.ContainsFunc(e.all(), func(s *Session) bool { return s.node == n && s.open })
}

// gather says whether the engine can start: all its nodes are up. Then its older processes are ended; otherwise it
// starts later.
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

// later plans something for the engine. If that is on one node, the plan ends with the node's daemon.
func (e *Engine) later(d transfer.Time, do func()) {
	if e.spans() {
		e.c.after(d, do)
		return
	}
	e.node.later(d, do)
}
