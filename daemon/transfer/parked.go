package transfer

// Takes that wait under a key are looked at, all of them, whenever a place becomes free there, and there may be thousands of one peer's:
// none may cost a look at the others.

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

// wakeKey looks again at the takes that wait under a key, in the order in which they came. Those that go on waiting are parked anew.
func (m *Machine) wakeKey(key string) {
	list := m.parked[key]
	delete(m.parked, key)
	for _, v := range list {
		v.parked = false
	}
	for _, v := range list {
		switch o := m.offers[key]; {
		case v.state != serveParked:
		case o != nil && o == v.waitsFor && o.item == nil && o.joined && !o.admits(v.claimName(m)): // all else was looked at before
			o.renew(m)
			m.park(v)
		default:
			m.admit(v)
		}
	}
}

// waits says that none of the bytes may move yet, for want of what only the producer's engine or the consumer can bring.
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
