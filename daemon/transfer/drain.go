package transfer

import (
	"maps"
	"slices"
)

// drain: no new operations, so no new offers. A take that waits for one is told what one is told that comes now, and who drains the daemon does
// not wait for it. A daemon that stops leaves such takes to the next one.
func (m *Machine) drain(ev Drain) {
	m.draining, m.stopping = true, m.stopping || ev.Stop
	if m.stopping {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(m.parked)) {
		m.wakeKey(key)
	}
}

// await parks a take until its offer, or what is missing of that, comes. A peer's asks the next daemon; one of this node is for its engine to
// submit again.
func (v *serve) await(m *Machine) {
	switch {
	case !m.draining || m.stopping:
		m.park(v)
	case v.peer != nil:
		v.putOff(m, m.noNewTakes())
	default:
		v.refuse(m, m.noNewTakes())
	}
}

func (m *Machine) noNewTakes() Cause {
	return because(Unavailable, "the daemon of node %q is draining; take again after its restart", m.cfg.Node)
}

// Busy counts the ends of transfers that may touch memory or are still to do so.
func (m *Machine) Busy() int {
	n := 0
	for _, v := range m.serves {
		if !m.stopping || v.state != serveParked {
			n++
		}
	}
	for _, t := range m.takes {
		// A daemon that stops is not held up by what the next one can do as well.
		if t.stage != stageReleased && (!m.stopping || t.granted) {
			n++
		}
	}
	return n
}
