package transfer

// timer is embedded in what has to be woken. It is in the machine's heap while pos, its index there plus 1, is above 0.
type timer struct {
	at    Time
	pos   int
	which wake
	owner waker
}

// wake says which of an object's timers fired.
type wake uint8

const (
	wakeDeadline wake = iota
	wakeResend
	wakeSettle
	wakeGrace
	wakeExpiry
	wakeRedial
	wakeGraves
	wakeLinger
)

type waker interface{ fire(m *Machine, which wake) }

// arm sets the timer, also if it is running already.
func (m *Machine) arm(t *timer, owner waker, which wake, at Time) {
	t.owner, t.which, t.at = owner, which, at
	if t.pos == 0 {
		m.timers = append(m.timers, t)
		t.pos = len(m.timers)
	}
	m.sift(t)
}

func (m *Machine) disarm(t *timer) {
	if t.pos == 0 {
		return
	}
	last := len(m.timers) - 1
	moved := m.timers[last]
	m.timers[last] = nil
	m.timers = m.timers[:last]
	if moved != t {
		m.timers[t.pos-1] = moved
		moved.pos = t.pos
		m.sift(moved)
	}
	t.pos, t.owner = 0, nil
}

// sift moves a timer to its place in the heap.
func (m *Machine) sift(t *timer) {
	h, i := m.timers, t.pos-1
	for i > 0 && h[(i-1)/2].at > t.at {
		h[i] = h[(i-1)/2]
		h[i].pos = i + 1
		i = (i - 1) / 2
	}
	for {
		c := 2*i + 1
		if c+1 < len(h) && h[c+1].at < h[c].at {
			c++
		}
		if c >= len(h) || h[c].at >= t.at {
			break
		}
		h[i] = h[c]
		h[i].pos = i + 1
		i = c
	}
	h[i] = t
	t.pos = i + 1
}

// tick fires what is due.
func (m *Machine) tick() {
	m.armed = 0
	for len(m.timers) > 0 && m.timers[0].at <= m.now {
		t := m.timers[0]
		owner, which := t.owner, t.which
		m.disarm(t)
		owner.fire(m, which)
		m.deliver()
	}
}

// rearm asks for a tick if the next timer is due before the tick that was asked for. If it is due later, that tick
// finds nothing to do: cheaper than an effect per operation.
func (m *Machine) rearm() {
	if len(m.timers) == 0 {
		return
	}
	if at := m.timers[0].at; m.armed == 0 || at < m.armed {
		m.armed = at
		m.emit(ArmTimer{At: at})
	}
}
