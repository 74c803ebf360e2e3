package sim

import "github.com/kvpipe/kvpipe/daemon/transfer"

// What libkvpipe does by itself when its daemon goes, and while there is none.

// lose: the daemon is gone. The client lives, and waits for the next one.
func (s *Session) lose() {
	s.bare, s.resumes = false, false
	s.away, s.leaving, s.watch, s.ring, s.idle = true, false, 0, nil, 0
	for _, o := range s.eng.c.ops {
		switch {
		case o.sess != s || o.kind != "small" || o.in == nil:
		case o.ends[s] == nil:
			o.loseSmall()
		default:
			o.releaseAll()
		}
	}
	for _, o := range s.eng.c.ops {
		if o.sess == s && o.kind != "small" && o.in != nil {
			o.lose()
		}
	}
}

// keep: the operation is submitted while there is no daemon. It is sent to the next one if that comes in time; a
// cancel has its effect at once.
func (o *Op) keep() {
	o.kept = true
	if o.kind == "small" {
		if t := o.loseSmall(); t != nil && t.ends[o.sess] == nil {
			t.local = true
			t.tell(transfer.WasCancelled, transfer.Cancelled)
		}
		return
	}
	if o.timeout > 0 {
		o.limit = o.c.now + o.timeout + o.c.bound()
		o.lapse()
	}
}

// lapse ends the operation when its time is over, if there is no daemon then.
func (o *Op) lapse() {
	o.c.after(max(o.left(), 0), func() {
		if (o.sess.away || o.sess.resumes) && o.ends[o.sess] == nil {
			o.local = true
			o.tell(transfer.Failed, transfer.Timeout)
		}
	})
}

// loseSmall ends a cancel or withdrawal, and returns the operation that it cancels.
func (o *Op) loseSmall() *Op {
	target := uint64(0)
	switch in := o.in.(type) {
	case *transfer.CancelOp:
		target = in.Target
	case *transfer.WithdrawOp:
		target = in.Target
	default:
		return nil // an extension is sent again
	}
	t := o.sess.byUser[target]
	if t != nil {
		t.undone = true
	}
	o.tell(transfer.Done, transfer.OK)
	return t
}

func (o *Op) lose() {
	o.releaseAll()
	switch {
	case o.noticed != 0:
		o.notice = !o.heard
	case o.ends[o.sess] != nil:
	case o.granted || o.conflict:
		o.notice = o.granted && len(o.concerned) > 1
		o.local = !o.notice
		o.tell(transfer.Failed, transfer.Restarted)
	case o.undone:
		o.local = true
		o.tell(transfer.WasCancelled, transfer.Cancelled)
	case o.limit > 0:
		o.lapse()
	}
}

// releaseAll: a daemon that is gone touches no memory, so every session that waits for RELEASED is told.
func (o *Op) releaseAll() {
	for _, r := range o.concerned {
		if u := o.ends[r]; u != nil && !u.released && r.open {
			o.told(r, transfer.Complete{Status: transfer.Released})
		}
	}
}

// left returns how much of its time an operation has left.
func (o *Op) left() transfer.Time { return o.limit - o.c.bound() - o.c.now }

// tell completes the operation as the library does by itself.
func (o *Op) tell(status transfer.Status, reason transfer.Reason) {
	if o.limit > 0 && o.sess.node.ending { // a daemon that ends leaves it to the library, which says it once that is gone
		o.limit = max(o.limit, o.c.now)
	}
	e := transfer.Complete{Status: status, Reason: reason, Text: "said by the library"}
	if o.kind == "take" && status == transfer.Failed {
		e.Failed = o.all()
	}
	o.told(o.sess, e)
}
