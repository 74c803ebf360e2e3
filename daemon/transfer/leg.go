package transfer

// leg is what the driver may be doing at one end of a transfer: plans, posted or expected slices.
type leg struct {
	id    Leg
	ranks []*session // whose memory it may touch
	state legState
}

type legState uint8

const (
	legNew         legState = iota // the driver knows nothing of it
	legOpen                        // planned, perhaps moving
	legFencing                     // Fence was asked for
	legQuarantined                 // the fence failed; another Fenced will come
	legDone                        // fenced and forgotten
)

// busy is true while memory may be touched.
func (l *leg) busy() bool {
	return l.state == legOpen || l.state == legFencing || l.state == legQuarantined
}

// openLeg notes that the driver is about to hear of a new leg, for the first and only time.
func (m *Machine) openLeg(l *leg) {
	l.state = legOpen
	for _, s := range l.ranks {
		s.legs++
	}
}

// fenceLeg asks for the fence, once. The answer goes to the owner's method fenced.
func (m *Machine) fenceLeg(l *leg) {
	if l.state == legOpen {
		l.state = legFencing
		m.emit(Fence{Leg: l.id})
		if m.cfg.Broken.Fence {
			m.legFenced(Fenced{Leg: l.id})
		}
	}
}

func (m *Machine) legFenced(ev Fenced) {
	if ev.Leg.End == Consumer {
		if t := m.consumer(ev.Leg); t != nil && m.closeLeg(&t.leg, ev) {
			t.fenced(m, ev.Cause)
		}
	} else if v := m.producer(ev.Leg); v != nil && m.closeLeg(&v.leg, ev) {
		v.fenced(m, ev.Cause)
	}
}

// closeLeg notes the answer to a fence. It returns true when that is news.
func (m *Machine) closeLeg(l *leg, ev Fenced) bool {
	if l.state != legFencing && l.state != legQuarantined {
		return false
	}
	if ev.Cause.Reason != OK {
		l.state = legQuarantined
		m.log(warnLevel, "fence failed, memory quarantined", "peer", l.id.Peer, "transfer", hex(uint64(l.id.Xfer)), "reason", ev.Cause.Text)
		return true
	}
	l.state = legDone
	m.emit(Forget{Leg: l.id})
	return true
}

// leaveLeg gives the ranks' memory back. The owner calls it when it has said what it had to say.
func (m *Machine) leaveLeg(l *leg) {
	ranks := l.ranks
	l.ranks = nil
	for _, s := range ranks {
		s.legs--
		m.drained(s)
	}
}
