package sim

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// A scheduler's ranks hear of its operations from the daemon that accepted these. If both the scheduler and that
// daemon are gone, or the next daemon no longer knows a rank, nobody tells them. The application has to know what can
// still come.

// over: no daemon takes the session back.
func (s *Session) over(why error) {
	s.eng.c.tracef("%s session %d (%s rank %d) is refused: %v", s.node.name, s.id, s.eng.name, s.rank, why)
	delete(s.node.sessions, s.id)
	s.daemonGone()
	s.vanish()
}

// vanish: the client is gone, so the next daemon is not told what it asked for, and neither are its ranks.
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
	case o.settled(): // also if the asker never heard
		o.free()
	case o.ends[o.sess] == nil:
		o.limit = 0
		o.tell(transfer.Failed, transfer.Restarted)
	}
}

// unheld: operations that wait for ranks when their client goes are forgotten. This daemon never began them, so the
// ranks are told nothing.
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
		if x.Session == s.id && x.Operations <= others && x.Offers == 0 { // a watch may have been refused unheard
			s.vanish()
		}
	}
}

// unknown: the daemon no longer expected the session, so the session is not told what became of what schedulers had
// asked of it before.
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
