package sim

import "github.com/kvpipe/kvpipe/daemon/transfer"

// An engine that sleeps gives up its memory and has it back some time later. Nothing may touch it after
// RegionDrained.

// sleep asks for the rank's memory back.
func (s *Session) sleep() {
	s.sleepy = true
	s.node.step(transfer.RegionInvalidated{Session: s.id, Region: region})
}

// regionDrained: nothing touches the region any more. The machine also says so of a session that comes back without
// its memory.
func (s *Session) regionDrained() {
	if !s.sleepy || s.invalid {
		return
	}
	s.invalid = true
	c := s.eng.c
	c.napped++
	for _, o := range c.ops {
		// A client that collects late may not have heard yet that it was refused, or what became of its cancel.
		if s.lazy && o.kind == "small" {
			continue
		}
		u, own := o.ends[s], o.sess == s && !s.lazy && o.given && (o.kind == "offer" || o.kind == "take")
		if u == nil && own || u != nil && !u.released {
			c.fail("node %s: session %d has its memory back before it was told of the end of op %d (%s)", s.node.name, s.id, o.tag, o.kind)
		}
	}
	if !c.fixed {
		c.after(c.rng.span(0, 500*ms), s.wake)
	}
}

// wake has the memory back. A session without a daemon tells the next one.
func (s *Session) wake() {
	s.sleepy, s.invalid = false, false
	if s.open && !s.away && s.node.up {
		s.node.step(transfer.RegionRevalidated{Session: s.id, Region: region})
	}
}

// comesWithout tells the next daemon that the memory is away. If the daemon before had not let go of it, nobody waits
// for that any more.
func (s *Session) comesWithout() {
	if s.sleepy = s.invalid; s.invalid {
		s.node.step(transfer.RegionInvalidated{Session: s.id, Region: region})
	}
}
