package sim

import "github.com/kvpipe/kvpipe/daemon/transfer"

// Nothing stays for ever: an offer in which nobody is interested ends with its lease, and RELEASED comes soon after
// its fence.

const (
	echoes = 5 * second // how long signs of a lost interest may still arrive: a late copy of a take has all of the take's time again
	fences = 1500 * ms  // a fence that fails, and the one after it
)

// noteInterest is called whenever a daemon is given the operation. It notes until when that keeps its request's offer
// alive.
func (o *Op) noteInterest() {
	c, q, until := o.c, o.req, o.c.now
	switch in := o.in.(type) {
	case *transfer.OfferOp:
		if !c.fixed && !o.conflict {
			c.after(in.Lease+echoes, o.checkLease)
		}
	case *transfer.ExtendOp, *transfer.SealOp:
		if offer := o.sess.extended(in); offer != nil {
			q = offer.req
		}
	case *transfer.TakeOp:
		until += in.Timeout
	case *transfer.WatchOp:
		until += 2 * in.Timeout // it may be answered late, and its time counts from then on
	default:
		return
	}
	if q != nil {
		q.interest = max(q.interest, until)
	}
}

// checkLease checks that an offer that stands has had a sign of interest.
func (o *Op) checkLease() {
	c, s := o.c, o.sess
	if o.ends[s] != nil || !s.open || s.away || s.resumes || s.ousted || !s.node.up || o.exposed() {
		return // it has ended, or comes again with the next daemon
	}
	if c.opts.Ragged && s.lazy {
		return // all its room may be reserved, and that it was refused waits
	}
	over := o.req.interest + o.in.(*transfer.OfferOp).Lease + echoes + c.lost
	if c.now < over {
		c.after(over-c.now, o.checkLease)
		return
	}
	c.fail("op %d (offer of %s): it stands, and nobody has been interested in it for longer than its lease", o.tag, o.about())
}

// checkReleased checks that a session that was promised RELEASED gets it. Ends that collect late are left out:
// completions about items wait until a client collects others.
func (o *Op) checkReleased(s *Session) {
	if !o.c.fixed && (s.role != transfer.Endpoint || !s.lazy) {
		o.c.afterAll(fences, func() {
			switch {
			case !s.open || o.ends[s].released:
			case o.kind == "small" && o.c.now < s.hung+fences: // no room was reserved for it
				o.checkReleased(s)
			default:
				o.c.fail("op %d (%s of %s): session %d of %s has no RELEASED %dms after its end", o.tag, o.kind, o.about(), s.id, s.eng.name, fences/ms)
			}
		})
	}
}
