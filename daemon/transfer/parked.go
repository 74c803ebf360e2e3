package transfer

// Whenever a place becomes free under a key, all takes that wait there are looked at, and one peer may have thousands
// there. So looking at one must not cost a look at the others.

func (m *Machine) park(v *serve) {
	if v.parked {
		return
	}
	v.parked = true
	key := string(v.take.Key)
	m.parked[key] = append(m.parked[key], v)
}

func (m *Machine) unpark(v *serve) {
	if v.parked {
		v.parked = false
		unlist(m.parked, string(v.take.Key), v)
	}
}

// wakeKey looks again at the takes that wait under a key, in the order in which they came. Those that have to go on
// waiting are parked anew.
func (m *Machine) wakeKey(key string) {
	list := m.parked[key]
	delete(m.parked, key)
	for _, v := range list {
		v.parked = false
	}
	var at *places // at the offer, until one more begins
	full := func(o *offer, v *serve) bool {
		if at == nil {
			p := o.places()
			at = &p
		}
		return !at.admit(o, v.claimName(m))
	}
	for _, v := range list {
		switch o := m.offers[key]; {
		case v.state != serveParked:
		case o != nil && o == v.waitsFor && o.item == nil && o.joined && full(o, v): // its other checks passed before
			o.renew(m)
			m.park(v)
		default:
			m.admit(v)
			at = nil
		}
	}
}

// waits says whether no byte may move yet because something is missing that only the producer's engine or the consumer can bring.
func (v *serve) waits() bool {
	if v.state != serveMoving {
		return v.state == serveParked
	}
	for _, seg := range v.segs {
		if seg.granted && (seg.allowed > 0 || seg.hasInline || seg.slices == 0) {
			return false
		}
	}
	return true
}
