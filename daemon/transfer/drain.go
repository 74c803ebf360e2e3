package transfer

import (
	"maps"
	"slices"
)

// drain refuses new operations, and so new offers. A take that waits for an offer is told the same as one that comes
// now, so whoever drains the daemon need not wait for it. A daemon that stops leaves such takes to the next one.
func (m *Machine) drain(ev Drain) {
	m.draining, m.stopping = true, m.stopping || ev.Stop
	if m.stopping {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(m.parked)) {
		m.wakeKey(key)
	}
}

// await parks a take until its offer, or what that still lacks, comes. While the daemon drains, a peer's take is to ask
// the next daemon instead, and the engine has to submit a take of this node again.
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

// Busy counts the ends of transfers that touch memory, or may still do so.
func (m *Machine) Busy() int {
	n := 0
	for _, v := range m.serves {
		if !m.stopping || v.state != serveParked {
			n++
		}
	}
	for _, t := range m.takes {
		// Takes that were not granted do not hold up a daemon that stops: the next one can do them as well.
		if t.stage != stageReleased && (!m.stopping || t.granted) {
			n++
		}
	}
	return n
}
