package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// bind is an end of a pipe or lookup buffer, as its own session knows it.
type bind struct {
	op
	kind  BindKind
	place *place // nil for a receiving end
	name  placeName
	token []byte
	peer  string
	home  *home

	end     uint64 // a receiving end's name at its home
	homeID  uint64 // the home that it has met; 0: none yet
	base    uint64 // the home's number for this end's item 0; 0 until it has met one
	at      *peer  // node of the home that was asked last; nil: this one
	asked   bool
	told    channel // over which an end of a pipe that knows no home was told how a get ended
	gets    int     // under way
	tokens  int     // of its waiting gets, or of its items
	verdict *Cause
}

// channel names one of the channels to a node; none of the next is the same.
type channel struct {
	node  string
	epoch uint64
}

// MaxHeldTokens bounds the tokens, of 4 bytes each, of one end's queries or entries (docs/operating.md has it).
const MaxHeldTokens = 64 << 20

func (m *Machine) submitBind(s *session, sub *Submit, in *BindOp) {
	b := &bind{kind: in.Kind, name: placeName{in.Kind.buffer(), in.Name}, token: in.Token, peer: in.Peer}
	key := s.engine.key
	cause := Cause{}
	switch {
	case s.bind != nil:
		cause = because(Invalid, "the session is an end already; each end has a session of its own")
	case m.binds[key] >= m.cfg.MaxPipes:
		cause = because(Quota, "engine %q has %d ends of pipes and lookup buffers, the limit is limits.pipes = %d: close some, wait for those that linger, or raise that", key.name, m.binds[key], m.cfg.MaxPipes)
	case in.Kind.home() && m.lingering.owners[key.owner] >= m.cfg.MaxPipes:
		cause = because(Quota, "this user and cgroup has %d pipes and lookup buffers that linger, of all its engines, the limit is limits.pipes = %d: receive what is in some, wait until their linger is over, or raise that",
			m.lingering.owners[key.owner], m.cfg.MaxPipes)
	case in.Kind.home() && m.lingering.users[s.user] >= maxEstates*m.cfg.MaxPipes:
		cause = because(Quota, "this user has %d pipes and lookup buffers that linger, of all its cgroups, the limit is %d times limits.pipes = %d: receive what is in some, wait until their linger is over, or raise that",
			m.lingering.users[s.user], maxEstates, m.cfg.MaxPipes)
	case in.Kind.home():
		if p := m.places[b.name]; p != nil && p.home != nil && p.home.gone != nil {
			cause = because(Busy, "%s: its last sender is gone, with %s still to be received, for %s at most; receive what is left, or use another name",
				p, items(p.home.items), duration(p.home.over.at-m.now))
		} else if p != nil && p.home != nil {
			cause = because(Busy, "%s has a sender already on node %q (engine %q); close that, or use another name", p, m.cfg.Node, p.home.bind.by.engine.key.name)
		}
	case in.Peer == "" || in.Peer == m.cfg.Node:
		cause = m.mayReceive(b)
	}
	if cause.Reason == OK {
		cause = m.begin(&b.op, sub, s, nil, creditsKey, b)
	}
	if cause.Reason != OK {
		m.refuse(s, sub, cause)
		return
	}
	s.bind = b
	m.binds[key]++
	m.bound[b] = struct{}{}
	m.traceOp(&b.op, []byte(in.Name), "", in.Peer, 0)
	if in.Kind.home() {
		b.place = m.place(b.name)
		m.openHome(b, in)
		return
	}
	b.end = m.drawName()
	if in.Peer == "" || in.Peer == m.cfg.Node {
		p := m.place(b.name)
		_, _ = m.admitEnd(p, m.enter(p, endID{bind: b.end}), b.token)
		b.asked = true
	}
}

// mayReceive makes the checks of a receiving end on this node that are possible before it asks for anything.
func (m *Machine) mayReceive(b *bind) Cause {
	p := m.places[b.name]
	if p == nil {
		return Cause{}
	}
	switch {
	case p.receiver != nil && p.receiver.bound:
		return because(Busy, "%s has a receiver already; a pipe has one: close that, or use another name", p)
	case p.home != nil && !sameToken(p.home.token, b.token) && !m.cfg.Broken.Stranger:
		return because(Denied, "%s: wrong token; open both ends with the same one, or both without", p)
	}
	return Cause{}
}

// over ends the bind and everything that runs at it.
func (b *bind) over(m *Machine, status Status, cause Cause) {
	if b.stage != stageRunning {
		return
	}
	if h := b.home; h != nil {
		verdict := because(PeerGone, "%s: its sender is gone: %s", b.name, cause.Text)
		if h.broken != nil {
			verdict = h.gap()
		}
		m.endHome(h, status, cause, verdict)
		return
	}
	b.verdict = &cause
	for _, t := range b.running() {
		t.fail(m, status, cause)
	}
	m.unbind(b)
	m.conclude(&b.op, status, cause)
}

// running lists the end's gets. Each end has a session of its own.
func (b *bind) running() []*take {
	out := make([]*take, 0, b.gets)
	for _, o := range b.by.ops {
		if t, ok := o.owner.(*take); ok && t.phase != phaseOver {
			out = append(out, t)
		}
	}
	sortTakes(out)
	return out
}

func (b *bind) cancel(m *Machine, _ *op) {
	b.over(m, WasCancelled, because(Cancelled, "%s was closed at this end", b.name))
}

func (b *bind) lost(m *Machine, _ *op, s *session, cause Cause) {
	if b.home == nil || !b.home.stay(m, s, cause) {
		b.over(m, Failed, cause)
	}
}

func (b *bind) busy() bool                                   { return false }
func (b *bind) account(*op, *session) (uint64, []layout.Run) { return 0, nil }
func (b *bind) freed(m *Machine, _ *op) {
	key := b.by.engine.key
	b.by.bind = nil
	delete(m.bound, b)
	if m.binds[key]--; m.binds[key] == 0 {
		delete(m.binds, key)
	}
}
