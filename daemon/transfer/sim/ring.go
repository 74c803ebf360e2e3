package sim

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// What a client submits lies in its ring until the daemon reads it: in order, soon, or late when the daemon has much to do or the client
// collects no completions. What a process that died had written is read before its session ends, and so perhaps after another one came in
// its place; of who closes its session it is lost. What a daemon had not read when it went is sent to the next one.

// entry is a submission that was written and not read.
type entry struct {
	op     *Op
	before bool // another process has come for one of the ranks since, about which it is not
}

// write puts a submission into the ring.
func (s *Session) write(o *Op) {
	c, e := s.eng.c, &entry{op: o}
	s.ring = append(s.ring, e)
	if c.faults.unread > 0 && !c.calm && c.rng.hit(c.faults.unread) {
		s.unread(c.rng.span(0, 600*ms))
	}
	s.node.later(max(c.delay(), s.idle-c.now), func() { s.readTo(e) })
}

// unread leaves the ring alone for a while.
func (s *Session) unread(d transfer.Time) { s.idle = max(s.idle, s.eng.c.now+d) }

// readTo reads up to and with an entry, unless it was read before.
func (s *Session) readTo(e *entry) {
	for n := slices.Index(s.ring, e); n >= 0; n-- {
		next := s.ring[0]
		s.ring = s.ring[1:]
		next.op.read(next.before)
	}
}

// readOut reads what a process had written that has died.
func (s *Session) readOut() {
	if s.killed && len(s.ring) > 0 {
		s.eng.c.readOut++
		s.readTo(s.ring[len(s.ring)-1])
	}
	s.ring = nil
}

// outdates marks what schedulers have written before this worker's session: it is not about a process that had no session then.
func (s *Session) outdates() {
	for _, x := range sortedSessions(s.node.sessions) {
		if x.role == transfer.Scheduler && x.eng == s.eng && x.instance == s.instance {
			for _, e := range x.ring {
				e.before = true
			}
		}
	}
}

// asBefore is a submission as the daemon gives it to the machine if it was written before another process came for one of its ranks.
func asBefore(in transfer.Op) transfer.Op {
	switch in := in.(type) {
	case *transfer.OfferOp:
		old := *in
		old.Again = true
		return &old
	case *transfer.TakeOp:
		old := *in
		old.Again = true
		return &old
	}
	return in
}
