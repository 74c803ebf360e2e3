package sim

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
)

// An engine that outlives its daemon does what libkvpipe does: operations to which no bytes were granted are sent to the next daemon
// under their names, granted takes have failed, and what was only waiting for RELEASED is free.

// comeBack: a node's daemon is back. An engine of which nobody is left on that node starts anew.
func (e *Engine) comeBack(n *Node) {
	if !e.stays(n) {
		e.killRest(e.all())
		e.down = e.spans()
		e.start()
		return
	}
	if r := e.c.rng; r.hit(e.c.faults.drain) { // this daemon was started only for a moment
		n.later(r.span(1*ms, 400*ms), n.stop)
	}
}

// comeBack lets all sessions come back, those of older instances too, each in its own time.
func (n *Node) comeBack() {
	r := &n.c.rng
	for _, s := range n.away {
		when := r.span(1*ms, 400*ms)
		if s.late > 0 {
			when, s.late = s.late, 0
		}
		if n.c.opts.Ragged && s.role == transfer.Scheduler && r.hit(30) { // what its ranks do meanwhile it does not know of
			when = max(when, r.span(300*ms, 1800*ms))
		}
		if r.hit(n.c.faults.client) {
			n.later(r.span(1*ms, 400*ms), s.hello)
		}
		n.later(when, s.resume)
	}
}

// returning says whether some of the engine's sessions have not come back yet.
func (e *Engine) returning() bool {
	return slices.ContainsFunc(e.all(), func(s *Session) bool { return s.open && s.away })
}

// hello opens a session in vain: by the time it is answered its client has given up, and comes again.
func (s *Session) hello() {
	if !s.eng.c.fixed && !(s.open && s.away) {
		return
	}
	x := &Session{node: s.node, eng: s.eng, role: s.role, rank: s.rank, instance: s.instance, credits: s.eng.c.credits}
	s.node.visit(x, s.id, transfer.Cause{Reason: transfer.PeerGone, Text: "closed the connection"})
}

// ended opens the end of a pipe beside the engine's sessions, with memory of its own, and closes it.
func (e *Engine) ended() {
	x := &Session{node: e.node, eng: e, role: transfer.Endpoint, credits: 8, mem: newMemory(e.shape, 0)}
	e.node.visit(x, 0, transfer.Cause{Reason: transfer.Closed, Text: "closed by its owner"})
}

// resume opens the session again and sends its operations again.
func (s *Session) resume() {
	n, c, was := s.node, s.eng.c, s.id
	if !s.open || !s.away {
		return
	}
	if s.passedOver() {
		s.kill("another is in its place")
		return
	}
	if n.draining {
		n.later(c.rng.span(50*ms, 500*ms), s.resume)
		return
	}
	awaited := s.heir != nil && slices.ContainsFunc(n.roster.Away(), func(x roster.Session) bool { return x.ID == s.eng.workers[s.rank].id })
	n.lastID++
	s.id, s.credits = n.lastID, c.credits
	ev, err := n.admit(s, was)
	if err == nil && awaited && s.instance == s.eng.instance {
		c.fail("node %s: session %d (%s rank %d) came back and has the place of session %d, which had come in its place and is awaited", n.name, was, s.eng.name, s.rank, s.eng.workers[s.rank].id)
	}
	if err == errBusy && s.tries < 10 {
		s.id = was
		s.tries++
		n.later(c.rng.span(50*ms, 500*ms), s.resume)
		return
	}
	if err != nil {
		if s.instance == s.eng.instance && err != errBusy {
			c.fail("node %s: session %d of the newest instance of %s was not let in: %v", n.name, was, s.eng.name, err)
		}
		c.rebuffed++
		s.over(err)
		return
	}
	c.resumed++
	s.away, s.drained = false, false
	n.sessions[s.id] = s
	s.begin(ev)
	if !ev.Resumed {
		s.unknown()
	}
	if s.resumes = s.bare; !s.bare {
		s.again()
	}
}

// again sends what the session asked for to the next daemon.
func (s *Session) again() {
	for _, o := range s.eng.c.ops {
		if o.sess == s && o.in != nil {
			o.again()
		}
	}
}

func (o *Op) again() {
	s, n := o.sess, o.sess.node
	step := func(user uint64, in transfer.Op) {
		o.passedOn = false
		n.step(transfer.Submit{Session: s.id, UserData: user, Tag: o.tag, Op: in})
	}
	if o.notice {
		in := *o.in.(*transfer.TakeOp)
		in.Restarted, in.Again = true, !s.eng.older
		o.notice = false
		s.lastUser++
		o.noticed = s.lastUser
		step(o.noticed, &in)
		return
	}
	if o.ends[s] != nil || o.conflict {
		return
	}
	if s.eng.older && o.stale() { // nothing tells the daemon whose blocks these were
		o.local = true
		o.tell(transfer.Failed, transfer.Restarted)
		return
	}
	if !o.given && o.timeout > 0 && o.limit == 0 {
		o.limit = o.c.now + o.timeout + o.c.bound()
	}
	flagged := !s.eng.older && !(o.kept && o.c.opts.Lapse == Fresh)
	o.given, o.kept = true, false
	o.noteInterest()
	switch in := o.in.(type) {
	case *transfer.TakeOp:
		again := *in
		again.Timeout, again.Again = max(o.left(), 1), flagged
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
		again.Again = flagged
		step(o.user, &again)
		for _, x := range o.more {
			s.lastUser++
			s.quiet[s.lastUser] = x
			o.extends(x)
			if ext, ok := x.(*transfer.ExtendOp); ok {
				own := *ext
				x = &own
			}
			step(s.lastUser, x)
		}
	default:
		if o.kind == "small" {
			o.limit = 0 // its offer may have to wait for other ranks
		}
		step(o.user, o.in)
	}
}

// loyal says whether an engine outlives this crash of one of its daemons; processes that died before stay dead. In
// scripts no engine does.
func (n *Node) loyal(e *Engine) bool {
	return !n.c.fixed && !e.down && e.endpoint == nil && n.c.rng.hit(n.c.faults.loyal) && e.stays(n)
}
