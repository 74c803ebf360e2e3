package transfer

import (
	"bytes"
	"slices"
)

// serve is the producer's end of a transfer.
//
//	parked --admitted--> moving --MsgEnd--> over
//	   |                   | (withdrawn, expired, fault, peer gone)
//	   +--refused--> over  +--> aborting --fenced--> over
type serve struct {
	leg       leg
	peer      *peer
	take      *MsgTake
	held      int          // of MaxHeld: by its block ids and ranks, and once it is admitted, by its segments and plans
	consumers []RankLayout // nil until their layouts are known
	offer     *offer       // once admitted
	claim     *claim
	seeker    *seeker // the get whose item it takes
	counted   bool    // in claim.live
	parked    bool    // in Machine.parked
	waitsFor  *offer  // the offer that it may take once a place there becomes free
	state     serveState
	segs      []*sending
	sentAll   bool
	cause     Cause // of the abort
	deadline  timer
	resend    timer
	lane      laneMember
	unlinked  bool // its channel is down
	repeats   int
	pace      pace // bounds how often its grants are repeated
	layouts   pace // likewise, for a consumer that lacks a layout: it asks at once, whenever it asked for the take
	began     Time
	until     Time // the take's deadline, as its daemon told it
	ended     bool // the consumer said that it is over
	seg0      sending
	segs1     [1]*sending // room for what most have: one segment
}

type serveState uint8

const (
	serveParked serveState = iota
	serveMoving
	serveAborting // fence asked for; the consumer is told after it
	serveDone     // fence asked for; the consumer knows
	serveOver
)

var serveStateNames = [...]string{
	serveParked: "parked", serveMoving: "moving", serveAborting: "aborting", serveDone: TransferEnded, serveOver: TransferEnded,
}

// String is the state's word in the admin interface.
func (s serveState) String() string { return serveStateNames[s] }

// askedFor handles MsgTake.
func (m *Machine) askedFor(p *peer, msg *MsgTake) {
	id := legOf(p, msg.Xfer, Producer)
	msg.Deadline = min(max(msg.Deadline, 0), m.cfg.MaxTimeout)
	if v := m.serves[id]; v != nil {
		v.askedAgain(m, msg)
		return
	}
	if e := p.remembered(id); e != nil && !m.cfg.Broken.Incarnation {
		m.send(p, &MsgRefuse{Xfer: msg.Xfer, Cause: e.cause})
		return
	}
	if m.seekers[id] != nil && !bytes.HasPrefix(msg.Key, []byte(itemPrefix)) {
		m.send(p, &MsgRefuse{Xfer: msg.Xfer, Cause: because(Invalid, "transfer %s is a get here, and takes the item that was found for it alone", hex(uint64(msg.Xfer)))})
		return
	}
	if m.draining {
		// The offer may come back with the daemon.
		m.send(p, &MsgRefuse{Xfer: msg.Xfer, Cause: m.noNewTakes(), Retry: m.cfg.Resend})
		return
	}
	if p != nil && p.serves >= m.cfg.MaxParked {
		m.send(p, &MsgRefuse{Xfer: msg.Xfer, Cause: because(Quota, "%d takes of node %q wait on node %q, the limit; let some of them end first", p.serves, p.node, m.cfg.Node), Retry: m.cfg.Resend})
		return
	}
	held := msg.held()
	if cause := m.mayHold(p, held); cause.Reason != OK {
		m.send(p, &MsgRefuse{Xfer: msg.Xfer, Cause: cause, Retry: m.cfg.Resend})
		return
	}
	if p == nil && m.takes[msg.Xfer] == nil {
		return // cancelled in the same step
	}
	v := &serve{peer: p, take: msg, held: held, began: m.now, until: m.now + msg.Deadline}
	v.leg.id = id
	m.serves[id] = v
	if p != nil {
		p.serves++
		p.held += held
	}
	m.arm(&v.deadline, v, wakeDeadline, m.now+min(msg.Deadline, m.cfg.OfferWait))
	m.admit(v)
	if p != nil && v.state == serveParked {
		m.send(p, &MsgParked{Xfer: msg.Xfer})
		m.arm(&v.resend, v, wakeResend, m.now+m.cfg.Resend)
	}
}

// admit lets a parked take begin if its offer is here and free. Otherwise it parks the take under the key, puts it off
// or refuses it.
func (m *Machine) admit(v *serve) {
	t := v.take
	o := m.offers[string(t.Key)]
	if bytes.HasPrefix(t.Key, []byte(itemPrefix)) {
		if cause := m.claimItem(v, o); cause.Reason != OK {
			v.refuse(m, cause)
			return
		}
	}
	if o == nil {
		if g := m.graves.keys[string(t.Key)]; g != nil {
			if cause, dead := g.verdict(m, t.Token); dead {
				v.refuse(m, cause)
				return
			}
		}
		v.await(m)
		return
	}
	if cause := o.authorise(t); cause.Reason != OK && !m.cfg.Broken.Stranger {
		v.refuse(m, cause)
		return
	}
	o.renew(m)
	if v.consumers == nil {
		ranks := m.consumerRanks(v)
		if ranks == nil {
			m.park(v)
			return
		}
		if v.peer != nil {
			if cause := m.mayHold(v.peer, v.peer.fresh(ranks)); cause.Reason != OK {
				v.putOff(m, cause)
				return
			}
			v.peer.use(ranks)
		}
		v.consumers = ranks
	}
	if cause := m.agree(o.layouts, v.consumers); cause.Reason != OK {
		v.refuse(m, cause)
		return
	}
	name := v.claimName(m)
	if c := o.claim(name); c != nil && c.parts != t.Parts {
		v.refuse(m, because(Invalid, "take %d of engine %q has %d parts here and %d before; use one number for all of them", t.TakeID, t.Engine, t.Parts, c.parts))
		return
	}
	if !o.joined {
		v.await(m)
		return
	}
	if !o.admits(name) {
		v.waitsFor = o
		m.park(v)
		return
	}
	if cause := v.maySegments(m, o.segments()); cause.Reason != OK {
		if v.peer == nil { // the limit is that of its own session
			v.refuse(m, cause)
		} else {
			v.putOff(m, cause)
		}
		return
	}
	m.unpark(v)
	v.enter(m, o, name)
}

// authorise checks what a take shows before anything is done for it.
func (o *offer) authorise(t *MsgTake) Cause {
	switch {
	case !sameToken(o.token, t.Token):
		return because(Denied, "key %s: wrong token; use the one that the offer was made with", short(o.key))
	case !bytes.Equal(o.content, t.Content):
		return because(Incompatible, "key %s: the offer's content digest is %s, the take's %s; both sides must describe the same adapters, inputs and salt",
			short(o.key), digest(o.content), digest(t.Content))
	case t.Parts < 1 || t.Parts > maxParts || t.Part < 0 || t.Part >= t.Parts:
		return because(Invalid, "part %d of %d: parts must be 1 to %d, and part below it", t.Part, t.Parts, maxParts)
	}
	return Cause{}
}

// claimName is the name of the take's claim at its offer.
func (v *serve) claimName(m *Machine) claimName {
	name := claimName{v.take.Engine, v.take.Instance, v.take.TakeID}
	if m.cfg.Broken.Apart && v.peer != nil {
		name.engine += v.peer.node
	}
	return name
}

// enter begins the transfer.
func (v *serve) enter(m *Machine, o *offer, name claimName) {
	v.state, v.offer, v.claim = serveMoving, o, o.enter(name, v.take.Parts)
	v.segs = v.segs1[:0]
	v.claim.live++
	v.counted = true
	if o.item == nil { // each GET of an item begins only one take, and GETs of ends on two nodes may have one name
		v.replace(m)
	}
	o.serves = append(o.serves, v)
	v.leg.ranks = o.ranks
	m.traceServe(v, "take begins at its producer")
	m.arm(&v.deadline, v, wakeDeadline, m.now+v.take.Deadline+2*m.cfg.Resend)
	if v.peer != nil {
		m.arm(&v.resend, v, wakeResend, m.now+m.cfg.Resend)
	}
	v.advance(m)
}

// askedAgain answers a repeated MsgTake. It is a sign of life, and the last answer may have been lost.
func (v *serve) askedAgain(m *Machine, msg *MsgTake) {
	switch v.state {
	case serveParked:
		if msg.held() <= v.held && bytes.Equal(msg.Key, v.take.Key) { // it is parked under that key
			v.take = msg
		}
		if o := m.offers[string(msg.Key)]; o != nil && sameToken(o.token, msg.Token) {
			o.renew(m)
		}
		if v.consumers == nil {
			m.admit(v)
		}
		if v.state == serveParked {
			m.send(v.peer, &MsgParked{Xfer: msg.Xfer})
		}
	case serveMoving:
		v.offer.renew(m)
		v.repeatFor(m)
	}
}

// refuse ends a take that was not granted.
func (v *serve) refuse(m *Machine, cause Cause) {
	m.unpark(v)
	v.cause = cause
	m.send(v.peer, &MsgRefuse{Xfer: v.leg.id.Xfer, Cause: cause})
	v.state = serveDone
	v.stop(m)
}

// abort ends a take on the producer's behalf: reads are fenced first, then the consumer is told.
func (v *serve) abort(m *Machine, cause Cause) {
	switch v.state {
	case serveParked:
		v.refuse(m, cause)
	case serveMoving:
		v.cause, v.state = cause, serveAborting
		v.leave(m)
		v.offer.fail(m, v.claim)
		v.stop(m)
	}
}

// stop fences the leg, if the driver knows it.
func (v *serve) stop(m *Machine) {
	m.leaveLane(v)
	if v.offer != nil {
		for _, s := range v.offer.ranks {
			m.unwait(s, v)
		}
	}
	if v.leg.state == legNew {
		v.leg.state = legDone
		v.leg.ranks = nil
		v.over(m)
		return
	}
	m.fenceLeg(&v.leg)
}

// leave stops counting the transfer among its claim's live ones.
func (v *serve) leave(m *Machine) {
	if v.counted {
		v.counted = false
		v.claim.live--
	}
}

// fenced handles the answer to the leg's fence: nothing is read any more, or, with a cause, the fence failed for now.
func (v *serve) fenced(m *Machine, cause Cause) {
	if cause.Reason != OK {
		if v.offer != nil {
			for _, mb := range v.offer.members {
				m.quarantine(&mb.op, cause)
			}
		}
		return
	}
	o := v.offer
	o.opens(-1)
	v.over(m)
	o.settle(m)
	m.leaveLeg(&v.leg)
}

// over ends the transfer here. A consumer that has to hear of it is told until it answers, or lingering is over.
func (v *serve) over(m *Machine) {
	aborted := v.state == serveAborting
	v.forget(m)
	m.traceServe(v, "take ended at its producer")
	m.settleLane(v)
	if o := v.offer; o != nil {
		if i := slices.Index(o.serves, v); i >= 0 {
			o.serves = slices.Delete(o.serves, i, i+1) // past may remember the offer for long, which must not keep v and its bytes
		}
	}
	if v.peer != nil {
		if x := v.leg.id.Xfer; v.peer.fencing[x] == v {
			delete(v.peer.fencing, x)
		}
		m.rememberServe(v, aborted)
	}
	if aborted && !v.unlinked {
		m.send(v.peer, &MsgAbort{Xfer: v.leg.id.Xfer, Cause: v.cause})
	}
	switch k := v.seeker; {
	case k == nil:
	case aborted && v.sentAll && k.item != nil && k.peer != nil:
		m.doubt(k)
	default:
		m.unseek(k)
	}
}

// forget drops what the machine, and the peer, hold of an end that is over.
func (v *serve) forget(m *Machine) {
	v.state = serveOver
	m.disarm(&v.deadline)
	m.disarm(&v.resend)
	delete(m.serves, v.leg.id)
	if v.peer != nil {
		v.peer.serves--
		v.peer.held -= v.held
		v.peer.leave(v.consumers)
	}
}

// fire handles a deadline that passed, or repeats what was not answered.
func (v *serve) fire(m *Machine, which wake) {
	switch {
	case which == wakeResend:
		m.arm(&v.resend, v, wakeResend, m.now+m.backoff(true, &v.repeats))
		v.repeat(m)
	case v.state == serveParked && m.now < v.until && m.home.patient(m.now):
		m.arm(&v.deadline, v, wakeDeadline, min(v.until, m.home.until)) // its offer may be on its way back
	case v.state == serveParked:
		cause := v.whyParked(m)
		if m.now >= v.until {
			cause.Reason = Timeout // the take's own deadline: whichever node notices first, its owner gets the same reason
		}
		v.refuse(m, cause)
	default:
		v.abort(m, because(Timeout, "key %s: the take's deadline passed on node %q and its consumer did not say how it ended", short(v.offer.key), m.cfg.Node))
	}
}

// whyParked says what a parked take waited for in vain.
func (v *serve) whyParked(m *Machine) Cause {
	key, o := short(v.take.Key), m.offers[string(v.take.Key)]
	waited := duration(m.now - v.began)
	switch {
	case o == nil:
		return because(NotFound, "key %s is unknown on node %q: no offer came within %s; check key and peer, and that the producer still runs", key, m.cfg.Node, waited)
	case !o.joined:
		return because(NotFound, "key %s: only %d of the ranks of engine %q on node %q offered it within %s", key, len(o.ranks), o.engine.key.name, m.cfg.Node, waited)
	case v.consumers == nil:
		return because(Timeout, "key %s: the layouts of engine %q did not arrive at node %q within %s", key, v.take.Engine, m.cfg.Node, waited)
	}
	return because(Busy, "key %s is being taken by %d other engines, as many as it was offered to; offer it with more consumers", key, o.consumers)
}
