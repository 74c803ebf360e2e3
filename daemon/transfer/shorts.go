package transfer

// What a GET had no room for stays reserved for its end until that asks for it, declines it, or its time is over. The GET itself has ended by
// then and counts nowhere, so an end may have as many of those as its session may have operations.

// mayBeShort tells whether an end may have one item more reserved that it has no room for.
func (m *Machine) mayBeShort(p *place, e *end) Cause {
	if len(e.shorts) < m.cfg.MaxOps {
		return Cause{}
	}
	return because(Quota, "%s: %d items are reserved for this end, for which its gets had no room, the limit is limits.inflight = %d: receive or decline some of them",
		p, len(e.shorts), m.cfg.MaxOps)
}

func (e *end) addShort(k *seeker)  { e.shorts = enlist(e.shorts, k, byShort) }
func (e *end) dropShort(k *seeker) { e.shorts = delist(e.shorts, k, byShort) }

// giveShortsBack ends them all, in the order of the list.
func (m *Machine) giveShortsBack(e *end) {
	for len(e.shorts) > 0 { // what one gives back may be found by another GET of the end
		shorts := e.shorts
		e.shorts = nil
		for _, k := range shorts {
			m.unseek(k)
		}
	}
}
