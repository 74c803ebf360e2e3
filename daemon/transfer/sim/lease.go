package sim

import "github.com/kvpipe/kvpipe/daemon/transfer"

// Nothing stands for ever: an offer in which nobody is interested ends with its lease, and RELEASED comes soon after its fence.

const (
	echoes = 5 * second // how long who lost interest is heard of: a slow copy of a late repetition of a take has the time that the take had
	fences = 1500 * ms  // one that fails, and one after it
)

// noteInterest is called whenever a daemon is given the operation. It notes how long that keeps its request's offer alive.
func (o *Op) noteInterest() {
	c, q, until := o.c, o.req, o.c.now
	switch in := o.in.(type) {
	case *transfer.OfferOp:
		if !c.fixed && !o.conflict {
			c.after(in.Lease+echoes, o.checkLease)
		}
	case *transfer.ExtendOp:
		if offer := o.sess.byUser[in.Target]; offer != nil {
			q = offer.req
		}
	case *transfer.TakeOp:
		until += in.Timeout
	case *transfer.WatchOp:
		until += 2 * in.Timeout // it may be answered late, and counts from then on
	default:
		return
	}
	if q != nil {
		q.interest = max(q.interest, until)
	}
}

// checkLease: an offer that stands has had a sign of interest.
func (o *Op) checkLease() {
	c, s := o.c, o.sess
	if o.ends[s] != nil || !s.open || s.away || s.ousted || !s.node.up || o.exposed() {
		return // it ended, or comes again with the next daemon
	}
	over := o.req.interest + o.in.(*transfer.OfferOp).Lease + echoes
	if c.now < over {
		c.after(over-c.now, o.checkLease)
		return
	}
	c.fail("op %d (offer of %s): it stands, and nobody has been interested in it for longer than its lease", o.tag, o.about())
}

// checkReleased looks whether a session that was promised RELEASED got it. Answers about items wait until a client collects others.
func (o *Op) checkReleased(s *Session) {
	if !o.c.fixed && (s.role != transfer.Endpoint || !s.lazy) {
		o.c.after(fences, func() {
			if s.open && !o.ends[s].released {
				o.c.fail("op %d (%s of %s): session %d of %s has no RELEASED %dms after its end", o.tag, o.kind, o.about(), s.id, s.eng.name, fences/ms)
			}
		})
	}
}
