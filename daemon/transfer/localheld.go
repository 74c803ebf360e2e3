package transfer

// What a take within this node keeps besides its first segment counts against limits.block_ids of the session that takes, as what other
// nodes' takes keep counts against MaxHeld: a take of few blocks has as many segments as the offer has pieces. Of the first segment there is
// one for each operation, and of those a session has only so many.

// keepHere counts so much more of a take within this node until that is released, or says why it is too much.
func (v *serve) keepHere(m *Machine, n int) Cause {
	cause := v.mayKeepHere(m, n)
	if t := m.takes[v.leg.id.Xfer]; cause.Reason == OK && t != nil && t.stage != released {
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
