package transfer

import "slices"

// This file is about GETs whose home is on another node. Every message may be lost, doubled or late. MsgSeek is
// repeated until it is answered. What is reserved for it goes back when its take does not come, when the channel is
// lost, or when MsgEnd says so.

// seekAsked handles MsgSeek at the home.
func (m *Machine) seekAsked(p *peer, msg *MsgSeek) {
	id := legOf(p, msg.Xfer, Producer)
	if k := m.seekers[id]; k != nil {
		m.sayAgain(k)
		return
	}
	if p == nil || m.serves[id] != nil || m.doubts[doubtName{p.node, msg.Xfer}] != nil {
		return
	}
	if e := p.past.ends[id]; e != nil {
		m.send(p, &MsgSeekRefuse{Xfer: msg.Xfer, Cause: e.cause})
		return
	}
	if m.draining {
		m.send(p, &MsgSeekRefuse{Xfer: msg.Xfer, Cause: because(Unavailable, "the daemon of node %q is draining; try again after its restart", m.cfg.Node), Retry: m.cfg.Resend})
		return
	}
	name, eid := placeName{msg.Buffer, msg.Name}, endID{p.node, msg.Bind}
	if cause := m.maySeek(p, msg, name, eid); cause.Reason != OK {
		m.send(p, &MsgSeekRefuse{Xfer: msg.Xfer, Cause: cause, Retry: m.cfg.Resend})
		return
	}
	msg.Deadline, msg.Keep = min(max(msg.Deadline, 0), maxGetTimeout), min(max(msg.Keep, 0), maxGetTimeout)
	k := &seeker{
		id: id, peer: p, match: msg.Match, seq: msg.Seq, absolute: msg.Home != 0, key: msg.Key, tokens: msg.Tokens, token: msg.Token,
		room: msg.Room, keep: msg.Keep, until: m.now + msg.Deadline, brought: msg.Take, held: msg.held(),
	}
	if cause := msg.sound(); cause.Reason != OK {
		m.send(p, &MsgSeekRefuse{Xfer: msg.Xfer, Cause: cause})
		return
	}
	if pl := m.places[name]; pl != nil && pl.ends[eid] != nil && pl.ends[eid].closed {
		m.send(p, &MsgSeekRefuse{Xfer: msg.Xfer, Cause: because(Closed, "%s: this end was closed", name)})
		return
	}
	if msg.Home != 0 {
		if cause := m.sameHome(name, eid, msg); cause.Reason != OK {
			m.send(p, &MsgSeekRefuse{Xfer: msg.Xfer, Cause: cause})
			return
		}
	}
	m.seekers[id] = k
	p.seekers++
	p.held += k.held
	m.arm(&k.deadline, k, wakeDeadline, k.until+m.cfg.Resend)
	m.beginSeek(k, name, eid)
	if k.state == seekWaiting {
		m.sayParked(k)
	}
}

// sound checks what the codec does not.
func (msg *MsgSeek) sound() Cause {
	fits := msg.Match == MatchItem || msg.Match == MatchDecline || (msg.Match == MatchNext) == !msg.Buffer && msg.Match >= MatchNext && msg.Match <= MatchKey
	tokens := msg.Match == MatchPrefix || msg.Match == MatchExact
	if !fits || tokens != (len(msg.Tokens) > 0) || msg.Name == "" {
		return because(Invalid, "match %d of %q with %d tokens: the daemons' versions do not agree", msg.Match, msg.Name, len(msg.Tokens))
	}
	return Cause{}
}

// sameHome sees to it that an end which has met a home gets items of that home alone.
func (m *Machine) sameHome(n placeName, id endID, msg *MsgSeek) Cause {
	p := m.places[n]
	if p != nil && p.home != nil && p.home.id == msg.Home {
		e := m.enter(p, id)
		e.based, e.base = true, msg.Base
		return Cause{}
	}
	if p != nil && p.ends[id] != nil && p.ends[id].verdict != nil {
		return *p.ends[id].verdict
	}
	return because(PeerGone, "%s: the sender that this end was connected to is gone from node %q, and what this end had not received is lost; open the end anew", n, m.cfg.Node)
}

// sayAgain answers a repeated MsgSeek: the last answer may have been lost.
func (m *Machine) sayAgain(k *seeker) {
	switch k.state {
	case seekWaiting:
		m.sayParked(k)
	case seekFound, seekShort:
		v := m.serves[k.id]
		switch {
		case k.item == nil && v != nil: // the end of the transfer tells
			return
		case k.item == nil:
			m.refuseSeeker(k, because(Expired, "%s: what was found for this get was withdrawn before it was received", k.place))
			return
		}
		m.sayFound(k, v != nil)
		if v != nil { // what it had to say meant nothing without MsgFound
			v.repeatFor(m)
		}
	}
}

func (m *Machine) sayParked(k *seeker) {
	msg := &MsgSeekParked{Xfer: k.id.Xfer, Why: m.whyWaiting(k)}
	if h := k.place.home; h != nil && k.queued != queuedEarly {
		msg.Home, msg.Base = h.id, k.end.base
	}
	m.send(k.peer, msg)
}

// sayFound sends MsgFound. taken: MsgTake need not come.
func (m *Machine) sayFound(k *seeker, taken bool) {
	it := k.item
	msg := &MsgFound{
		Xfer: k.id.Xfer, Home: it.home.id, Base: k.end.base, Item: k.called(), Bytes: it.bytes, Capacity: it.home.capacity, Matched: k.matched, Meta: it.meta,
		Taken: taken,
	}
	if k.state == seekFound {
		o := m.asOffer(it)
		msg.Key, msg.Token = []byte(o.key), o.token
	}
	m.send(k.peer, msg)
}

// forgetSeek forgets a get of another node, but remembers its end: late copies of its MsgSeek must not begin it again.
func (m *Machine) forgetSeek(k *seeker, doubtful bool) {
	k.drop()
	if doubtful {
		delete(m.doubts, doubtName{k.peer.node, k.id.Xfer})
		return
	}
	delete(m.seekers, k.id)
	if m.serves[k.id] == nil && k.peer.past.ends[k.id] == nil {
		m.rememberEnd(&serveEnd{leg: k.id, peer: k.peer, at: m.now, until: m.now, cause: because(Expired, "this get has ended")})
	}
}

// seekerOf finds a GET by the name of its transfer.
func (m *Machine) seekerOf(p *peer, x XferID) *seeker {
	if p != nil {
		return m.seekers[legOf(p, x, Producer)]
	}
	if t := m.takes[x]; t != nil && t.get != nil && t.get.local.place != nil && t.get.local.state != seekOver && t.get.local.state != seekShort {
		return &t.get.local
	}
	return nil
}

// claimItem lets a take of an item begin only if its GET found that item.
func (m *Machine) claimItem(v *serve, o *offer) Cause {
	k := m.seekerOf(v.peer, v.leg.id.Xfer)
	if k != nil && k.state == seekFound && k.item == nil {
		v.seeker = k // what it found was withdrawn: no other take comes, and the seeker is over with this one
	}
	if o == nil || o.item == nil || k == nil || k.item != o.item || k.state != seekFound {
		return because(Expired, "the item is not reserved for this get (any more): it was withdrawn, or its time was over")
	}
	if v.seeker = k; k.peer != nil {
		m.disarm(&k.deadline) // the transfer has a deadline of its own
	}
	return Cause{}
}

// onFound handles MsgFound: the home has an item, and keeps it for this GET.
func (t *take) onFound(m *Machine, msg *MsgFound) {
	t.met(msg.Home, msg.Base)
	if m.stopping { // the home might not hear any more how it ends, and the item would be received again
		return
	}
	t.found(m, &finding{Item: msg.Item, Bytes: msg.Bytes, Capacity: msg.Capacity, Matched: msg.Matched, Meta: msg.Meta, Key: msg.Key, Token: msg.Token, Taken: msg.Taken}, nil)
}

func (t *take) onSeekParked(msg *MsgSeekParked) {
	t.known, t.said, t.get.why = true, "", msg.Why
	t.met(msg.Home, msg.Base)
}

func (t *take) met(home, base uint64) {
	if b := t.get.end; home != 0 && b.homeID == 0 {
		b.homeID, b.base = home, base
	}
}

func (t *take) onSeekRefuse(m *Machine, msg *MsgSeekRefuse) {
	if msg.Retry > 0 {
		t.putOff(m, msg.Cause, msg.Retry)
		return
	}
	if msg.Cause.Reason == Restarted { // here it would mean this node's daemon
		msg.Cause.Reason = PeerGone
	}
	if b := t.get.end; b.homeID == 0 && !b.name.buffer {
		b.told = channel{t.peer.node, t.peer.epoch}
	}
	t.refusedSeek(m, msg.Cause)
}

// mayMix sees to it that the numbers of one end are not those of two senders. The node of a home remembers, while the
// channel is there, what it told an end. After that only the home's name would do, and this end was told of none.
func (b *bind) mayMix(p *peer) Cause {
	if b.homeID != 0 || b.told == (channel{}) || b.told == (channel{p.node, p.epoch}) {
		return Cause{}
	}
	return because(PeerGone, "%s: an earlier get of this end has ended, and the channel to node %q was lost before this one was answered: another sender may be there by now; open the end anew, what was not received may still come", b.name, p.node)
}

// unbind is a closed end of which the home has to hear.
type unbind struct {
	peer   *peer
	msg    MsgUnbind
	resend timer
	until  Time
}

// unbind tells the home that an end is closed.
func (m *Machine) unbind(b *bind) {
	switch {
	case !b.asked:
	case b.at == nil:
		if p := m.places[b.name]; p != nil {
			if e := p.ends[endID{bind: b.end}]; e != nil {
				m.leave(p, e)
			}
		}
	case b.at.up: // a lost channel tells the home, too
		u := &unbind{peer: b.at, msg: MsgUnbind{Bind: b.end, Buffer: b.name.buffer, Name: b.name.name}, until: m.now + m.cfg.Linger}
		m.unbinds[b.end] = u
		u.fire(m, wakeResend)
	}
}

func (u *unbind) fire(m *Machine, _ wake) {
	if m.now > u.until || !u.peer.up {
		delete(m.unbinds, u.msg.Bind)
		return
	}
	msg := u.msg
	m.send(u.peer, &msg)
	m.arm(&u.resend, u, wakeResend, m.now+m.cfg.Resend)
}

func (m *Machine) unbindAcked(p *peer, bind uint64) {
	if u := m.unbinds[bind]; u != nil && u.peer == p {
		m.disarm(&u.resend)
		delete(m.unbinds, bind)
	}
}

// unbound handles MsgUnbind: an end of another node is closed.
func (m *Machine) unbound(p *peer, msg *MsgUnbind) {
	if p == nil {
		return
	}
	name, id := placeName{msg.Buffer, msg.Name}, endID{p.node, msg.Bind}
	if !m.mayEnter(p, name, id) {
		return // not answered, so said again: until there is room to remember that it is closed, a late MsgSeek could open it
	}
	pl := m.place(name)
	if e := m.enter(pl, id); !e.closed {
		e.closed = true
		m.arm(&e.forget, closedEnd{pl, e}, wakeLinger, m.now+m.cfg.Linger)
		m.leave(pl, e)
	}
	m.send(p, &MsgUnbindAck{Bind: msg.Bind})
}

// loseEnds ends the gets and ends that came over a channel which is gone. What they wait for is asked for again over the next one.
func (m *Machine) loseEnds(p *peer) {
	for _, k := range m.seekersOf(func(k *seeker) bool { return k.peer == p }) {
		m.abandonSeek(k)
	}
	for _, pl := range m.placesOf(p.node) {
		for _, e := range pl.endsOf(p.node) {
			m.leave(pl, e)
		}
	}
}

func (m *Machine) placesOf(node string) []*place {
	var out []*place
	for _, p := range m.places {
		if len(p.endsOf(node)) > 0 {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, comparePlaces)
	return out
}

func (p *place) endsOf(node string) []*end {
	var out []*end
	for id, e := range p.ends {
		if id.node == node {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, compareEnds)
	return out
}
