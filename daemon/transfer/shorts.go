package transfer

// What a GET had no room for stays reserved for its end until that asks for it, declines it, or its time is over. The GET itself has ended by
// then and counts nowhere, so an end may have as many of those as its session may have operations; they end in any order, and each knows its
// place in the list.

// mayBeShort tells whether an end may have one item more reserved that it has no room for.
func (m *Machine) mayBeShort(p *place, e *end) Cause {
	if len(e.shorts) < m.cfg.MaxOps {
		return Cause{}
	}
	return because(Quota, "%s: %d items are reserved for this end, for which its gets had no room, the limit is limits.inflight = %d: receive or decline some of them",
		p, len(e.shorts), m.cfg.MaxOps)
}

func (e *end) addShort(k *seeker) {
	k.short = len(e.shorts)
	e.shorts = append(e.shorts, k)
}

// dropShort takes one off the list; the last one gets its place.
func (e *end) dropShort(k *seeker) {
	if k.short >= len(e.shorts) || e.shorts[k.short] != k {
		return
	}
	n := len(e.shorts) - 1
	last := e.shorts[n]
	last.short = k.short
	e.shorts[k.short] = last
	e.shorts[n] = nil
	e.shorts = e.shorts[:n]
}

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
