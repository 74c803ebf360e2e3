package sim

import (
	"fmt"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// An engine that outlives its daemon does what libkvpipe does: operations to which no bytes were granted are sent to the next daemon
// under their names, granted takes have failed, and what was only waiting for RELEASED is free.

// lose: the daemon is gone. The client lives, and waits for the next one.
func (s *Session) lose() {
	s.away, s.watch = true, 0
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

func (o *Op) loseSmall() {
	target := uint64(0)
	switch in := o.in.(type) {
	case *transfer.CancelOp:
		target = in.Target
	case *transfer.WithdrawOp:
		target = in.Target
	default:
		return // an extension is sent again
	}
	if t := o.sess.byUser[target]; t != nil {
		t.undone = true
	}
	o.tell(transfer.Done, transfer.OK)
}

func (o *Op) lose() {
	c := o.c
	o.releaseAll()
	switch {
	case o.ends[o.sess] != nil:
	case o.granted || o.conflict:
		o.notice = o.granted && len(o.concerned) > 1
		o.local = !o.notice
		o.tell(transfer.Failed, transfer.Restarted)
	case o.undone:
		o.local = true
		o.tell(transfer.WasCancelled, transfer.Cancelled)
	case o.limit > 0:
		c.after(max(o.left(), 0), func() {
			if o.sess.away && o.ends[o.sess] == nil {
				o.local = true
				o.tell(transfer.Failed, transfer.Timeout)
			}
		})
	}
}

// releaseAll: a daemon that is gone touches no memory, so whoever waits for RELEASED is told.
func (o *Op) releaseAll() {
	for _, r := range o.concerned {
		if u := o.ends[r]; u != nil && !u.released && r.open {
			o.told(r, transfer.Complete{Status: transfer.Released})
		}
	}
}

// left is how much of its time an operation has.
func (o *Op) left() transfer.Time { return o.limit - o.c.bound() - o.c.now }

// tell is what the library says by itself.
func (o *Op) tell(status transfer.Status, reason transfer.Reason) {
	o.told(o.sess, transfer.Complete{Status: status, Reason: reason, Text: "said by the library"})
}

// comeBack: the daemon of a node is there again. An engine that died meanwhile is started anew.
func (e *Engine) comeBack(n *Node) {
	for _, s := range e.all() {
		if !s.open {
			e.killRest(e.all())
			e.down = e.spans()
			e.start()
			return
		}
	}
	if r := e.c.rng; r.hit(e.c.faults.drain) { // it was started for a moment only
		n.later(r.span(1*ms, 400*ms), n.stop)
	}
	instance := e.instance
	for _, s := range e.all() {
		if s.node != n {
			continue
		}
		if e.c.rng.hit(e.c.faults.client) {
			n.later(e.c.rng.span(1*ms, 400*ms), s.hello)
		}
		n.later(e.c.rng.span(1*ms, 400*ms), func() {
			if e.instance == instance && s.open && s.away {
				s.resume()
			}
		})
	}
}

// returning says whether some of the engine's sessions have not come back yet.
func (e *Engine) returning() bool {
	return slices.ContainsFunc(e.all(), func(s *Session) bool { return s.open && s.away })
}

// hello opens a session in vain: its client has given up by the time that it is answered, and comes again.
func (s *Session) hello() {
	if !s.eng.c.fixed && !(s.open && s.away) {
		return
	}
	s.node.visit(s.reopened(), transfer.Cause{Reason: transfer.PeerGone, Text: "closed the connection"})
}

// ended opens the end of a pipe beside the engine's sessions, and closes it.
func (e *Engine) ended() {
	e.node.visit(transfer.SessionOpened{Engine: e.name, Owner: "uid 1", Role: transfer.Endpoint, TPWorld: 1, PPWorld: 1, Credits: 8},
		transfer.Cause{Reason: transfer.Closed, Text: "closed by its owner"})
}

// visit opens a session and closes it.
func (n *Node) visit(ev transfer.SessionOpened, why transfer.Cause) {
	n.lastID++
	ev.Session = n.lastID
	n.sessions[ev.Session] = &Session{node: n}
	n.step(ev)
	n.step(transfer.SessionClosed{Session: ev.Session, Cause: why})
}

// resume opens the session again and sends what it has.
func (s *Session) resume() {
	n := s.node
	s.eng.c.resumed++
	n.lastID++
	s.id, s.away, s.drained = n.lastID, false, false
	s.credits = s.eng.c.credits
	n.sessions[s.id] = s
	n.step(s.reopened())
	if s.mem != nil {
		s.comesWithout()
		n.step(transfer.LayoutSet{Session: s.id, Layout: s.mem.layout})
	}
	for _, o := range s.eng.c.ops {
		if o.sess == s && o.in != nil {
			o.again()
		}
	}
}

func (o *Op) again() {
	s, n := o.sess, o.sess.node
	step := func(user uint64, in transfer.Op) {
		n.step(transfer.Submit{Session: s.id, UserData: user, Tag: o.tag, Op: in})
	}
	if o.notice {
		in := *o.in.(*transfer.TakeOp)
		in.Restarted = true
		o.notice = false
		s.lastUser++
		o.noticed = s.lastUser
		step(o.noticed, &in)
		return
	}
	if o.ends[s] != nil || o.conflict {
		return
	}
	if !o.given && o.timeout > 0 {
		o.limit = o.c.now + o.timeout + o.c.bound()
	}
	o.given = true
	o.noteInterest()
	switch in := o.in.(type) {
	case *transfer.TakeOp:
		again := *in
		again.Timeout, again.Again = max(o.left(), 1), true
		step(o.user, &again)
	case *transfer.WatchOp:
		again := *in
		again.Timeout = max(o.left(), 1)
		step(o.user, &again)
	case *transfer.DropOp:
		again := *in
		again.Timeout = max(o.left(), 1)
		step(o.user, &again)
	case *transfer.OfferOp:
		again := *in
		again.Again = true
		step(o.user, &again)
		for _, x := range o.more {
			ext := *x
			s.lastUser++
			s.quiet[s.lastUser] = true
			step(s.lastUser, &ext)
		}
	default:
		if o.kind == "small" {
			o.limit = 0 // its offer may have to wait for other ranks
		}
		step(o.user, o.in)
	}
}

// opened is what the daemon is told of a session.
func (s *Session) opened() transfer.SessionOpened {
	ev := transfer.SessionOpened{
		Session: s.id, Engine: s.eng.name, Instance: fmt.Sprintf("i%d", s.eng.instance), Owner: "uid 1", Role: s.role,
		Rank: uint32(s.rank), TPWorld: uint32(s.eng.shape.ranks()), PPWorld: 1, Credits: s.credits,
	}
	if s.role == transfer.Scheduler {
		ev.Rank = transfer.NoRank
	}
	return ev
}

// reopened is what the next daemon is told of it.
func (s *Session) reopened() transfer.SessionOpened {
	ev := s.opened()
	ev.Resumed = true
	return ev
}

// loyal says whether an engine outlives this crash of its daemon. In scripts none does.
func (c *Cluster) loyal(e *Engine) bool {
	if c.fixed || e.down || !c.rng.hit(60) {
		return false
	}
	for _, s := range e.all() {
		if !s.open || s.role == transfer.Endpoint {
			return false
		}
	}
	return true
}
