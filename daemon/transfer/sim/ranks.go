package sim

import (
	"fmt"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
)

// A single process of an engine may die or leave while the others go on, with or without a daemon. Either another one
// of the same instance comes in its place, with memory of its own, or nobody does until the engine starts anew. A
// process may also stand still when the daemon comes back, until it is no longer awaited or another has its place.

// unsettle has daemons restart again and again. Most engines live on, but not all of their processes.
func (f *faults) unsettle(r *rng) {
	f.crash, f.client, f.rank, f.loyal = r.in(40, 90), r.in(0, 10), r.in(15, 60), 95
	f.partition, f.drain = min(f.partition, 10), min(f.drain, 5)
	f.trouble = r.span(300*ms, second)
}

// unsettled says whether this is such a seed. In these, engines have several ranks and a scheduler more often, and
// offers wait longer.
func (c *Cluster) unsettled() bool { return c.faults.loyal > 60 }

// suffer draws what becomes of an engine's processes on a node while its daemon is down, and soon after.
func (e *Engine) suffer(n *Node, down transfer.Time) {
	c, r := e.c, &e.c.rng
	if e.endpoint != nil || c.faults.rank == 0 {
		return
	}
	if r.hit(c.faults.rank / 4) {
		c.after(r.span(0, down+3*second), func() { e.supersede() })
	}
	still := transfer.Time(0) // all of them, as in a container that is paused
	if r.hit(c.faults.rank / 2) {
		still = r.span(0, 4*second)
	}
	for _, s := range e.all() {
		if s.node != n {
			continue
		}
		if still > 0 {
			s.late = still + r.span(1*ms, 400*ms)
		}
		if !s.open || !r.hit(c.faults.rank) {
			continue
		}
		when := r.span(0, down+600*ms)
		switch r.n(4) {
		case 0:
			s.late = r.span(0, 4*second)
		case 1:
			s.late = r.span(second, 4*second)
			if s.role == transfer.Worker {
				c.after(when, func() { e.replace(s) })
			}
		default:
			c.after(when, func() { e.lose(s) })
		}
	}
}

// lose ends one process.
func (e *Engine) lose(s *Session) {
	c, r, instance := e.c, &e.c.rng, e.instance
	if !s.open || e.down || s.instance != instance || s.heir != nil || c.calm {
		return
	}
	if e.sched != nil && r.hit(c.faults.unread) {
		e.sched.unread(r.span(0, 2*second))
	}
	soon := s.role == transfer.Scheduler && r.hit(30) // its successor may be faster than the news of its death
	if soon {
		s.news = r.span(0, 300*ms)
	}
	if r.hit(70) {
		s.kill("killed alone")
	} else {
		s.close("leaves alone")
	}
	if soon {
		c.after(r.span(0, 300*ms), func() { e.replace(s) })
		return
	}
	if r.hit(70) {
		c.after(r.span(60*ms, 1500*ms), func() { e.replace(s) })
		return
	}
	c.after(r.span(second, 4*second), func() {
		if e.instance == instance && e.node.up && s.heir == nil {
			e.crash(&c.rng)
		}
	})
}

// replace starts a process in place of one that died, or that stands still without a daemon.
func (e *Engine) replace(s *Session) {
	c := e.c
	if e.instance != s.instance || e.down || s.heir != nil || s.open && !s.away {
		return
	}
	sched := e.sched
	switch {
	case s.node == e.node && !e.stays(s.node): // nobody is left of the instance that it would join
		e.crash(&c.rng)
		return
	case !s.node.up, s.role == transfer.Worker && s.node.occupied(s), e.older && sched != nil && sched.open && sched.away: // what it sends unflagged would be about the new process
		c.after(c.rng.span(20*ms, 100*ms), func() { e.replace(s) })
		return
	}
	if c.opts.Ragged && s.role == transfer.Worker {
		e.shape.changes(&c.rng, s.rank)
	}
	x := e.newSession(s.role, s.rank)
	s.heir = x
	if s.role == transfer.Scheduler {
		x.pool = s.pool
		e.sched = x
		return
	}
	e.workers[s.rank] = x
	c.replaced++
}

// forgotten: a daemon that neither has nor awaits a session of an instance no longer knows which ranks it had.
// Processes of it that stand still are ended, and the engine starts anew.
func (e *Engine) forgotten(n *Node, instance string) {
	key := roster.Engine{Name: e.name, Owner: owner}
	_, mates, _ := n.lives.Judge(key, instance, false)
	if len(mates) > 0 || n.roster.Awaits(key, instance) || n != e.node || instance != fmt.Sprintf("i%d", e.instance) || e.c.fixed {
		return
	}
	for _, s := range n.away {
		if s.eng == e && s.instance == e.instance && s.away {
			s.kill("its instance is forgotten")
		}
	}
	if e.stays(n) {
		n.later(0, func() { e.crash(&e.c.rng) })
	}
}

// succeeds notes that the session has its rank's place. Two processes may want it, and have it in turns: one that
// stood still, and the one that was started for it. If that one comes too late for any daemon to have heard of it, it
// is ended, so that it does not come when its engine has ended, and begins anew.
func (s *Session) succeeds() {
	e := s.eng
	if s.role != transfer.Worker || s.instance != e.instance {
		return
	}
	if old := e.workers[s.rank]; old != s {
		if old.absent() {
			old.kill("another has its place")
		}
		old.heir, s.heir, e.workers[s.rank] = s, nil, s
	}
}

// passedOver says whether operations are about a process that was started in place of this one. If no daemon has heard
// of that process, it would take them to be about this one.
func (s *Session) passedOver() bool {
	if s.heir == nil || s.role != transfer.Worker || s.instance != s.eng.instance {
		return false
	}
	x := s.eng.workers[s.rank]
	return x.id == 0 && slices.ContainsFunc(s.eng.c.ops, func(o *Op) bool { return !o.freed && slices.Contains(o.concerned, x) })
}

// occupied says whether the daemon has a session of the rank.
func (n *Node) occupied(s *Session) bool {
	_, mates, _ := n.lives.Judge(s.engine(), s.opened().Instance, false)
	for o := range mates {
		if o.role == s.role && o.rank == s.rank {
			return true
		}
	}
	return false
}

// supersede starts a new instance while processes of the one before stand still or live.
func (e *Engine) supersede() {
	if !e.node.up || e.down || e.c.calm {
		return
	}
	for _, s := range e.all() {
		if s.absent() {
			s.kill("is not begun any more")
		}
	}
	e.begin()
}
