package transfer

// past remembers producer ends that are over, for three reasons. Late copies of MsgTake must not begin them again while
// the take may still run: slices are named by the transfer, so those of two offers would mix. Consumers that did not
// hear of an abort are told again. And a commit record that a lost channel delayed still counts. Each peer has a past
// of its own: what one peer says pushes out nothing that is remembered of another.
type past struct {
	ends   map[Leg]*serveEnd
	unsure map[XferID]*serveEnd // the unsure ones of ends, whatever their channel: names are not used again
	queue  []*serveEnd
	timer  timer
}

func newPast() past { return past{ends: map[Leg]*serveEnd{}, unsure: map[XferID]*serveEnd{}} }

// maxPast bounds the memory of many short transfers of a peer. A duplicate of a forgotten MsgTake begins a transfer
// again, which its consumer then disowns.
const maxPast = 1 << 16

type serveEnd struct {
	leg    Leg
	peer   *peer
	at     Time // when it was put into the queue
	until  Time // the take is over by then
	cause  Cause
	unsure bool // everything was sent, and the consumer's word is still out
	offer  *offer
	claim  *claim
	part   int
	bytes  uint64

	resend    timer // of its abort
	repeats   int
	saidUntil Time
}

func (m *Machine) rememberServe(v *serve, aborted bool) {
	e := &serveEnd{leg: v.leg.id, peer: v.peer, at: m.now, until: v.until, cause: v.cause}
	if v.ended {
		e.until, e.cause = m.now, Cause{} // the consumer knows its own words, and they may be of any length
	}
	if e.cause.Reason == OK {
		e.cause = Cause{Reason: Expired, Text: "this transfer has ended"}
	}
	if aborted && v.sentAll && v.seeker == nil {
		e.unsure, e.offer, e.claim, e.part = true, v.offer, v.claim, v.take.Part
		for _, seg := range v.segs {
			e.bytes += seg.bytes
		}
	}
	m.rememberEnd(e)
	if aborted && !v.unlinked {
		e.saidUntil = m.now + m.cfg.Linger
		m.arm(&e.resend, e, wakeResend, m.now+m.backoff(true, &e.repeats))
	}
}

func (m *Machine) rememberEnd(e *serveEnd) {
	y := &e.peer.past
	y.ends[e.leg] = e
	if e.unsure {
		y.unsure[e.leg.Xfer] = e
	}
	y.queue = append(y.queue, e)
	for len(y.queue) > maxPast {
		y.forget(m)
	}
	if y.timer.pos == 0 {
		m.arm(&y.timer, y, wakeLinger, y.queue[0].at+m.cfg.Linger)
	}
}

func (y *past) forget(m *Machine) {
	e := y.queue[0]
	y.queue[0] = nil
	y.queue = y.queue[1:]
	m.disarm(&e.resend)
	if y.ends[e.leg] == e {
		delete(y.ends, e.leg)
	}
	y.settle(e)
}

// settle is called when the consumer's word has come, or does not matter any more.
func (y *past) settle(e *serveEnd) {
	if y.unsure[e.leg.Xfer] == e {
		delete(y.unsure, e.leg.Xfer)
	}
	e.unsure, e.offer, e.claim = false, nil, nil
}

func (y *past) fire(m *Machine, _ wake) {
	for len(y.queue) > 0 && y.queue[0].at+m.cfg.Linger <= m.now {
		// Over a lost channel nothing comes any more. Only the word about what was sent may still come, over the next one.
		if e := y.queue[0]; e.until > m.now && (e.unsure || e.peer.up && e.leg.Epoch == e.peer.epoch) {
			e.at = m.now
			y.queue = append(y.queue[1:], e)
			continue
		}
		y.forget(m)
	}
	if len(y.queue) > 0 {
		m.arm(&y.timer, y, wakeLinger, y.queue[0].at+m.cfg.Linger)
		return
	}
	*y = newPast() // a map keeps the room of the most that was ever in it
}

// fire repeats the abort, but only for a while: the end is remembered until the take's deadline, which may be an hour
// away, and there may be thousands. A channel loses nothing while it is up. A consumer that has not heard of the abort
// by then ends at its own deadline, or hears of it when it asks.
func (e *serveEnd) fire(m *Machine, _ wake) {
	if e.peer.up && e.peer.epoch == e.leg.Epoch && m.now < e.saidUntil {
		m.send(e.peer, &MsgAbort{Xfer: e.leg.Xfer, Cause: e.cause})
		m.arm(&e.resend, e, wakeResend, m.now+m.backoff(true, &e.repeats))
	}
}

// endOf handles MsgEnd. It acknowledges it, so that the consumer can forget it, unless what it ends is of a lost
// channel and is still being fenced. Then the consumer has to say it again once that is over.
func (m *Machine) endOf(p *peer, msg *MsgEnd) {
	id := legOf(p, msg.Xfer, Producer)
	m.settleDoubt(p, msg.Xfer, msg.Status == Done)
	if v := m.serves[id]; v != nil {
		v.onEnd(m, msg)
	} else if k := m.seekerOf(p, msg.Xfer); k != nil {
		if msg.Status == Done && k.item != nil && k.item.bytes == 0 {
			m.consumedBy(k)
		} else {
			m.unseek(k)
		}
	} else if e := p.ended(msg.Xfer); e != nil {
		m.disarm(&e.resend)
		e.until = m.now // the consumer's end is over too
		if e.unsure && e.offer.took(m, msg) {
			e.offer.bytes += e.bytes
			e.offer.commit(m, e.offer.enter(e.claim.claimName, e.claim.parts), e.part)
		}
		p.past.settle(e)
	} else if p != nil && p.fencing[msg.Xfer] != nil {
		return
	} else if p != nil { // it overtook what it ends, which must not begin after it
		m.rememberEnd(&serveEnd{leg: id, peer: p, at: m.now, until: m.now, cause: because(Expired, "this transfer has ended")})
	}
	m.send(p, &MsgEndAck{Xfer: msg.Xfer})
}

// took says whether a commit record is about this offer, and the offer still counts takes.
func (o *offer) took(m *Machine, msg *MsgEnd) bool {
	return msg.Status == Done && !o.ended && (msg.Incarnation == o.incarnation || m.cfg.Broken.Incarnation)
}

// ended looks for a transfer of that peer that is over, of this epoch or an earlier one.
func (p *peer) ended(x XferID) *serveEnd {
	if p == nil {
		return nil
	}
	if e := p.remembered(legOf(p, x, Producer)); e != nil {
		return e
	}
	return p.past.unsure[x]
}

// remembered returns the end of exactly that transfer.
func (p *peer) remembered(id Leg) *serveEnd {
	if p == nil {
		return nil
	}
	return p.past.ends[id]
}
