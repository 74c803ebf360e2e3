package transfer

// An item for which a GET had no room stays reserved for its end until the end asks for it or declines it, or its time is over.
// The GET itself has ended by then and counts nowhere. So an end may have as many such items as its session may have operations.

// mayBeShort says whether an end may have one more item reserved for which it has no room.
func (m *Machine) mayBeShort(p *place, e *end) Cause {
	if len(e.shorts) < m.cfg.MaxOps {
		return Cause{}
	}
	return because(Quota, "%s: %d items are reserved for this end, for which its gets had no room, the limit is limits.inflight = %d: receive or decline some of them",
		p, len(e.shorts), m.cfg.MaxOps)
}

func (e *end) addShort(k *seeker)  { e.shorts = enlist(e.shorts, k, byShort) }
func (e *end) dropShort(k *seeker) { e.shorts = delist(e.shorts, k, byShort) }

// giveShortsBack ends all of them, in the order of the list.
func (m *Machine) giveShortsBack(e *end) {
	for len(e.shorts) > 0 { // what one gives back may be found by another GET of the end
		shorts := e.shorts
		e.shorts = nil
		for _, k := range shorts {
			m.unseek(k)
		}
	}
}
