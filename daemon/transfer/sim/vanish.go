package sim

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Of what a scheduler asked for, its ranks hear from the daemon that has accepted it. When scheduler and daemon both are no more, or the next
// daemon does not know a rank any more, nobody tells: what is still to come is for the application to know.

// over: no daemon takes the session any more.
func (s *Session) over(why error) {
	s.eng.c.tracef("%s session %d (%s rank %d) is refused: %v", s.node.name, s.id, s.eng.name, s.rank, why)
	delete(s.node.sessions, s.id)
	s.daemonGone()
	s.vanish()
}

// vanish: what a client asked for that is no more is not told to the next daemon, and so not to its ranks.
func (s *Session) vanish() {
	for _, o := range s.eng.c.ops {
		if o.sess == s {
			o.vanish()
		}
	}
}

func (o *Op) vanish() {
	if o.freed || o.kind == "small" || o.in == nil {
		return
	}
	o.local, o.notice = true, false
	switch {
	case o.settled(): // also if who asked for it never heard
		o.free()
	case o.ends[o.sess] == nil:
		o.limit = 0
		o.tell(transfer.Failed, transfer.Restarted)
	}
}

// unheld: what waits for ranks when its client goes is forgotten, and was never begun by this daemon: its ranks are told nothing.
func (s *Session) unheld() {
	if s.role != transfer.Scheduler || s.eng.c.fixed {
		return
	}
	if s.lazy { // it may have died before it heard what was refused
		s.eng.c.after(10*second, s.vanish)
	}
	others := 0 // that wait for nobody
	for _, o := range s.eng.c.ops {
		if o.sess == s && (o.kind == "watch" || o.kind == "drop") && o.given && o.ends[s] == nil {
			others++
		}
	}
	for _, x := range s.node.m.Snapshot().Sessions {
		if x.Session == s.id && x.Operations <= others {
			s.vanish()
		}
	}
}

// unknown: the daemon did not expect the session any more, so that it is told nothing of what schedulers had asked of it before.
func (s *Session) unknown() {
	for _, o := range s.eng.c.ops {
		if o.sess == s || o.ends[s] != nil || o.ends[o.sess] == nil {
			continue
		}
		if i := slices.Index(o.concerned, s); i >= 0 {
			o.concerned = slices.Delete(o.concerned, i, i+1)
			if o.settled() {
				o.free()
			}
		}
	}
}
