package sim

import (
	"encoding/binary"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// end tells the daemon that the session's client is gone, and checks what becomes of its offers if its process died.
func (s *Session) end() {
	n, c := s.node, s.eng.c
	defer n.gone(s, false)
	s.readOut()
	s.unheld()
	ev := transfer.SessionClosed{Session: s.id, Cause: transfer.Cause{Reason: transfer.Closed, Text: "process ended"}}
	s.gone, s.disowned = c.now, n.cfg.OrphanLease == 0
	if !s.killed || n.sessions[s.id] != s {
		n.step(ev)
		return
	}
	ev.Died, ev.Progress = true, s.progress
	if !c.fixed {
		n.step(transfer.Progress{}) // nothing, but the machine looks at its clock
	}
	before, succeeded := offersOf(n), s.succeeded()
	var mine []*Op
	for _, o := range c.ops {
		if s.offers(o) && !o.passedOn && !o.sess.resumes && o.solid() && !s.lazy { // a client that collects late may not have heard yet that it was refused
			mine = append(mine, o)
		}
	}
	n.step(ev)
	after := offersOf(n)
	for _, o := range mine {
		was, known := before[o.req.key]
		if !known || s.role == transfer.Scheduler && was.Engine != s.eng.name {
			continue
		}
		now, there := after[o.req.key]
		if succeeded && o.anyLives() {
			if there && !c.opts.Broken.Unfinished {
				c.fail("node %s: offer of %s outlives session %d, whose successor gives its blocks to others", n.name, o.req.key, s.id)
			}
			continue
		}
		survives := n.cfg.OrphanLease > 0 && (was.State == "sealed" || was.State == "orphaned") && (s.mem == nil || s.wrote(o))
		switch {
		case survives && (!there || now.State != "orphaned"):
			c.fail("node %s: offer of %s, finished, did not outlive session %d of %s", n.name, o.req.key, s.id, s.eng.name)
		case survives && !c.fixed && now.Lease != n.left(was):
			c.fail("node %s: offer of %s outlives session %d for %v, its lease had %v left", n.name, o.req.key, s.id, now.Lease, was.Lease)
		case !survives && there && !c.opts.Broken.Unfinished:
			c.fail("node %s: offer of %s, state %s before, outlives session %d of %s", n.name, o.req.key, was.State, s.id, s.eng.name)
		case survives:
			c.outlived++
			s.await(o, now.Lease)
		}
	}
}

// succeeded says whether a scheduler's successor had come before the daemon heard of its death.
func (s *Session) succeeded() bool {
	return s.heir != nil && s.role == transfer.Scheduler && s.heir.connected()
}

// anyLives says whether the daemon has one of the ranks of an offer.
func (o *Op) anyLives() bool { return slices.ContainsFunc(o.ranksOf(), (*Session).connected) }

// connected says whether the machine has the session, and has not told it to go.
func (s *Session) connected() bool {
	return slices.ContainsFunc(s.node.m.Snapshot().Sessions, func(x transfer.SessionInfo) bool { return x.Session == s.id && !x.Closing })
}

// left returns what must be left of an offer's lease after a death. A second death changes nothing.
func (n *Node) left(was transfer.OfferInfo) transfer.Time {
	if was.State == "orphaned" {
		return was.Lease
	}
	return min(was.Lease, n.cfg.OrphanLease)
}

// await checks some time later that what outlives the session can still be taken, as it must until its lease is over.
func (s *Session) await(o *Op, lease transfer.Time) {
	n, c, gens := s.node, s.eng.c, o.req.gens
	if c.fixed || lease < 2 {
		return
	}
	lost := c.lost
	n.later(c.rng.span(0, lease-1), func() {
		if c.lost > lost {
			return // it may be over now
		}
		if _, there := offersOf(n)[o.req.key]; !there && o.req.gens == gens && o.req.standing() {
			c.fail("node %s: offer of %s, which outlived session %d, is gone before its lease is over", n.name, o.req.key, s.id)
		}
	})
}

// standing says whether nothing has happened that ends the request's offer, except for the death of the process that wrote it.
func (r *Request) standing() bool {
	if r.drops > 0 || r.exposed() {
		return false
	}
	for _, o := range r.c.ops {
		if o.req != r {
			continue
		}
		if o.withdrawn || o.kind == "offer" && o.sess.role == transfer.Scheduler && o.sess.heir != nil {
			return false
		}
		for _, s := range o.concerned {
			switch {
			case o.kind == "offer" && (o.ends[s] != nil || s.ousted || s.sleepy || !s.open && !s.killed):
				return false
			case o.kind == "offer" && s.disowned:
				return false // it died later, when a reload had set that nothing outlives anybody
			case o.kind == "offer" && s.killed && s.mem != nil && (!s.wrote(o) || r.c.opts.Ragged && !o.solid()):
				return false // it died later, and perhaps before its model was done
			case o.kind == "take" && !s.open: // nobody was told how it ended
				return false
			}
		}
	}
	return len(r.takers[r.gens].engines()) < r.consumers
}

func offersOf(n *Node) map[string]transfer.OfferInfo {
	all := map[string]transfer.OfferInfo{}
	for _, o := range n.m.Snapshot().Offers {
		all[o.Key] = o
	}
	return all
}

// offers says whether the operation is an offer that concerns the session and still runs, as far as its clients know.
func (s *Session) offers(o *Op) bool {
	if o.kind != "offer" || !o.given || o.freed || o.refused() || o.ends[s] != nil {
		return false
	}
	for _, x := range o.concerned {
		if x == s {
			return true
		}
	}
	return false
}

// solid says whether every rank has a block of every segment of an offer, so that its bytes show whether it was
// written. One that is written layer by layer needs a block in the last layer.
func (o *Op) solid() bool {
	return !slices.ContainsFunc(o.ranksOf(), func(w *Session) bool {
		all := w.mem.part.layers
		last := w.mem.shape.groupOf(all[len(all)-1])
		return slices.ContainsFunc(o.segs, func(blocks []layout.BlockList) bool {
			if o.c.opts.Ragged {
				blocks = slices.DeleteFunc(slices.Clone(blocks), func(b layout.BlockList) bool { return b.NTokens == 0 || o.layered && b.Group != last })
			}
			return len(w.mem.places(blocks)) == 0
		})
	})
}

// wrote says whether the session's blocks contain everything that the operation offers, as far as the daemon took it. What it
// refused of an offer that was sent again is not held, and is given back when the process dies.
func (s *Session) wrote(o *Op) bool {
	all := true
	for _, b := range slices.Concat(slices.DeleteFunc(slices.Clone(o.segs), o.unaccepted)...) {
		s.mem.each(b, 0, len(s.mem.part.layers), func(layer uint32, token, head int, c []byte) bool {
			all = all && binary.LittleEndian.Uint64(c) == pattern(o.req.id, o.gen, layer, token, head)
			return all
		})
	}
	return all
}

// orphaned gives back all of the session's memory that does not have to stay.
func (s *Session) orphaned(e transfer.SessionOrphaned) {
	c := s.node.c
	if s.open || s.orphan || s.mem == nil {
		c.fail("node %s: session %d leaves memory behind: open %v, before %v", s.node.name, s.id, s.open, s.orphan)
		return
	}
	s.orphan = true
	stay := map[uint32]bool{}
	for _, lists := range e.Keep {
		for _, at := range s.mem.places(lists) {
			stay[at] = true
		}
	}
	var back []uint32
	for at := range place(3, 0) {
		if !stay[at] {
			back = append(back, at)
			delete(s.src, at)
			delete(s.dst, at)
		}
	}
	s.mem.spoil(back, c.rng.next())
}

// checkReturned checks that what a process left behind is given back when its time is over and the last fence holds.
func (s *Session) checkReturned() {
	c := s.node.c
	lease := s.node.orphans
	if s.role == transfer.Endpoint {
		lease = c.cfg.PipeLinger
	}
	if over := c.now - s.gone - lease - c.lost; s.orphan && over > fences {
		c.fail("node %s: memory of session %d was given back %v late", s.node.name, s.id, over)
	}
}
