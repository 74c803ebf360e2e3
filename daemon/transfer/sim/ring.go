package sim

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// A client's submissions lie in its ring until the daemon reads them: in order, and soon, or late if the daemon is
// busy or the client collects no completions. What a process wrote before it died is read before its session ends, so
// perhaps after another one came in its place. What is unread when a client closes its session is lost. What a daemon
// had not read when it went is sent to the next one.

// entry is a submission that was written and is not read yet.
type entry struct {
	op     *Op
	before bool // another process has since come for one of the ranks; the submission is not about that one
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

// unread has the daemon leave the ring alone for a while.
func (s *Session) unread(d transfer.Time) { s.idle = max(s.idle, s.eng.c.now+d) }

// readTo reads up to and including an entry, unless it was read before.
func (s *Session) readTo(e *entry) {
	for n := slices.Index(s.ring, e); n >= 0; n-- {
		next := s.ring[0]
		s.ring = s.ring[1:]
		next.op.read(next.before)
	}
}

// readOut reads what a dead process had written.
func (s *Session) readOut() {
	if s.killed && len(s.ring) > 0 {
		s.eng.c.readOut++
		s.readTo(s.ring[len(s.ring)-1])
	}
	s.ring = nil
}

// outdates marks what schedulers have written before this worker's session came. It is not about this worker.
func (s *Session) outdates() {
	for _, x := range sortedSessions(s.node.sessions) {
		if x.role == transfer.Scheduler && x.eng == s.eng && x.instance == s.instance {
			for _, e := range x.ring {
				e.before = true
			}
		}
	}
}

// asBefore returns a submission as the daemon gives it to the machine if it was written before another process came
// for one of its ranks.
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
