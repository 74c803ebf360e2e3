package transfer

// What a producer keeps of a take counts, and not only block ids: a take of few blocks has as many segments as the
// offer has pieces. For a take of another node it counts against MaxHeld. For one within this node it counts against
// limits.block_ids of the session that takes, except for the first segment: each operation has one, and the number of a
// session's operations is bounded.

// keepHere counts n more for a take within this node until that is released, or says why it is too much.
func (v *serve) keepHere(m *Machine, n int) Cause {
	cause := v.mayKeepHere(m, n)
	if t := m.takes[v.leg.id.Xfer]; cause.Reason == OK && t != nil && t.stage != stageReleased {
		t.countIDs(n)
	}
	return cause
}

func (v *serve) mayKeepHere(m *Machine, n int) Cause {
	t := m.takes[v.leg.id.Xfer]
	if t == nil {
		return Cause{}
	}
	cause := m.within(t.by, quotaBlockIDs, n)
	if cause.Reason != OK {
		cause.Text = "key " + short(v.take.Key) + ": its offer was made and extended in many pieces, each of which counts: " + cause.Text
	}
	return cause
}

// keepSegment counts one more segment of a take.
func (v *serve) keepSegment(m *Machine) Cause {
	if v.peer == nil {
		if len(v.segs) == 0 {
			return Cause{}
		}
		return v.keepHere(m, grantCost)
	}
	cause := v.maySegments(m, 1)
	if cause.Reason == OK {
		v.held += grantCost
		v.peer.held += grantCost
	}
	return cause
}

// maySegments says whether there is room for the first n segments.
func (v *serve) maySegments(m *Machine, n int) Cause {
	if v.peer == nil {
		return v.mayKeepHere(m, grantCost*max(n-1, 0))
	}
	return m.mayHold(v.peer, grantCost*n)
}

// keepPlan counts the plan of a segment, and the bytes that will ride inside a grant to another node. A take with few
// block ids can make plans of many views here.
func (v *serve) keepPlan(m *Machine, ev *Planned) Cause {
	n := ev.held()
	if v.peer == nil {
		if ev.Seg == 0 {
			return Cause{}
		}
		return v.keepHere(m, n)
	}
	if ev.Inline {
		n += int(ev.Bytes) / 4
	}
	if cause := m.mayHold(v.peer, n); cause.Reason != OK {
		return cause
	}
	v.held += n
	v.peer.held += n
	return Cause{}
}
