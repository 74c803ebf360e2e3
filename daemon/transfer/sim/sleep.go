package sim

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
)

// An engine that sleeps gives up its memory and has it back some time later. Nothing may touch it after
// RegionDrained.

// sleep asks for the rank's memory back.
func (s *Session) sleep() {
	s.sleepy = true
	s.saysInvalid()
}

func (s *Session) saysInvalid() {
	entry := roster.Session{Engine: s.eng.name, Instance: s.opened().Instance, Owner: owner, Role: s.role}
	s.node.roster.GaveUp(&entry)
	s.node.step(transfer.RegionInvalidated{Session: s.id, Region: region})
}

// napAlone is nap while there is no daemon. Then nothing touches the memory, and it is given up at once.
func (s *Session) napAlone(down transfer.Time) {
	c := s.eng.c
	if !c.opts.Ragged || s.role != transfer.Worker || !s.eng.shape.sched || !c.rng.hit(15) {
		return
	}
	c.after(c.rng.span(0, down), func() {
		if s.open && s.away && !s.sleepy && !s.ousted && !c.calm {
			s.sleepy, s.invalid = true, true
			s.bereaves()
			c.after(c.rng.span(0, 500*ms), s.wake)
		}
	})
}

// nap has a rank give its memory up soon after it came, whoever else of its engine is not there yet.
func (s *Session) nap() {
	c := s.eng.c
	if !c.opts.Ragged || c.calm || s.role != transfer.Worker || !s.eng.shape.sched || !c.rng.hit(25) {
		return
	}
	s.node.later(c.rng.span(0, 400*ms), func() {
		if s.open && !s.absent() && !s.away && !s.bare && !s.sleepy && !s.ousted && s.node.sessions[s.id] == s && !c.calm {
			s.sleep()
		}
	})
}

// bereaves: what its scheduler, which waits for the next daemon, wants done with the rank's memory is not about what that
// holds from now on. No daemon that was told of the memory knows of it yet.
func (s *Session) bereaves() {
	c := s.eng.c
	for _, o := range c.ops {
		if x := o.sess; x.role != transfer.Scheduler || !x.away || x.eng.older || o.freed || o.conflict || o.ends[x] != nil || !slices.Contains(o.ranksOf(), s) {
			continue
		}
		o.bereft = true
		var lost []uint32
		for at, by := range s.src {
			if by == o {
				lost = append(lost, at)
			}
		}
		slices.Sort(lost)
		s.mem.spoil(lost, c.rng.next())
	}
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
	s.bereaves()
	if !c.fixed {
		c.after(c.rng.span(0, 500*ms), s.wake)
	}
}

// wake has the memory back. A session without a daemon, or whose daemon does not know its memory yet, says so later.
func (s *Session) wake() {
	s.sleepy, s.invalid, s.napped = false, false, s.away || s.bare
	if s.open && !s.napped && s.node.up {
		s.node.step(transfer.RegionRevalidated{Session: s.id, Region: region})
	}
}

// comesWithout tells the next daemon that the memory is away, or was while there was no daemon. If the daemon before had
// not let go of it, nobody waits for that any more.
func (s *Session) comesWithout() {
	if s.sleepy = s.invalid; s.invalid || s.napped {
		s.saysInvalid()
	}
	if s.napped && !s.invalid {
		s.node.step(transfer.RegionRevalidated{Session: s.id, Region: region})
	}
	s.napped = false
}
