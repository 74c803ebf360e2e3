package sim

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// submit hands the operation to the library, which writes it into the ring, or keeps it until there is a daemon.
func (o *Op) submit(in transfer.Op) {
	s := o.sess
	switch {
	case !s.open || s.absent() || o.conflict && (s.away || s.resumes):
	case s.away || s.resumes:
		o.in = in
		o.keep()
	case s.node.up:
		o.in = in
		s.write(o)
	}
}

// read: the daemon has come to the operation. before: since it was written another process has come for a rank that
// it may be about.
func (o *Op) read(before bool) {
	c, s := o.c, o.sess
	if o.conflict && (!s.open || !o.conflicts()) {
		return
	}
	if before && c.opts.Lapse != Behind {
		o.in = asBefore(o.in)
	}
	held := o.accepted()
	o.given = true
	o.noteInterest()
	if o.timeout > 0 {
		o.limit = c.now + o.timeout + c.bound()
		if o.kind == "small" && !o.undoes() && !o.sess.eng.ready() {
			o.limit = 0 // its target may have to wait for other ranks
		}
	}
	o.passedOn = s.node.stopping
	s.node.step(transfer.Submit{Session: s.id, UserData: o.user, Tag: o.tag, Op: given(o.in)})
	o.checkEarly()
	if o.accepted() > held {
		c.fail("op %d (%s): a conflicting hold was granted over blocks of %s", o.tag, o.kind, o.holder)
	}
}

// undoes says whether the operation ends another one, which it does at once.
func (o *Op) undoes() bool {
	switch o.in.(type) {
	case *transfer.CancelOp, *transfer.WithdrawOp:
		return true
	}
	return false
}

// stale says whether a rank that the operation is about was replaced.
func (o *Op) stale() bool {
	e := o.sess.eng
	return !o.c.fixed && slices.ContainsFunc(o.ranksOf(), func(w *Session) bool {
		if w.instance != e.instance { // the newer one may not have come yet, where a node stands still
			return o.c.opts.Ragged && w.heir != nil
		}
		return w.role == transfer.Worker && e.workers[w.rank] != w
	})
}

// given returns what a machine may keep and change. The operation itself may have to be sent again, and is looked at
// when it has ended.
func given(in transfer.Op) transfer.Op {
	switch in := in.(type) {
	case *transfer.TakeOp:
		own := *in
		return &own
	case *transfer.GetOp:
		own := *in
		return &own
	}
	return in
}
