package transfer

// A pipe may be over before anybody came to receive: sealed with nothing in it, or broken at its first item. Nothing of it
// has to stay but that word, for whoever comes first within the linger; else that receiver would wait for another sender.
// The name is free for one at once.

// unheard is how a pipe ended that no receiver has met.
type unheard struct {
	place *place
	key   engineKey // of its sender
	token []byte
	cause Cause
	over  timer
}

// leaveWord notes how a home ends, if its receiver is still to come. An engine leaves no more of these notes than it may
// have ends.
func (m *Machine) leaveWord(h *home, verdict Cause) {
	key := h.bind.by.engine.key
	if h.place.buffer || h.met || h.items > 0 || !h.sealed && h.broken == nil || m.unheard[key] >= m.cfg.MaxPipes {
		return
	}
	u := &unheard{place: h.place, key: key, token: h.token, cause: verdict}
	h.place.unheard = u
	m.unheard[key]++
	m.arm(&u.over, u, wakeLinger, m.now+h.linger)
}

// forgetWord drops the note: it was heard, its time is over, or there is a new sender.
func (m *Machine) forgetWord(p *place) {
	u := p.unheard
	if u == nil {
		return
	}
	p.unheard = nil
	m.disarm(&u.over)
	if m.unheard[u.key]--; m.unheard[u.key] == 0 {
		delete(m.unheard, u.key)
	}
}

func (u *unheard) fire(m *Machine, _ wake) {
	m.forgetWord(u.place)
	m.tidyPlace(u.place)
}
