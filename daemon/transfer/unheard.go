package transfer

// A pipe may be over before anybody came to receive: sealed with nothing in it, or broken at its first item. Nothing of it
// has to stay but that word, for whoever comes first within the linger; else that receiver would wait for another sender.
// The name is free for one at once.

// unheard is how a pipe ended that no receiver has met.
type unheard struct {
	place *place
	owner string // of its sender
	token []byte
	cause Cause
	over  timer
}

// leaveWord notes how a home ends, if its receiver is still to come. An owner, who may name any number of engines, leaves
// no more of these notes than one engine may have ends.
func (m *Machine) leaveWord(h *home, verdict Cause) {
	owner := h.bind.by.engine.key.owner
	if m.cfg.Broken.Unheard || h.place.buffer || h.met || h.items > 0 || !h.sealed && h.broken == nil || m.unheard[owner] >= m.cfg.MaxPipes {
		return
	}
	u := &unheard{place: h.place, owner: owner, token: h.token, cause: verdict}
	h.place.unheard = u
	m.unheard[owner]++
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
	if m.unheard[u.owner]--; m.unheard[u.owner] == 0 {
		delete(m.unheard, u.owner)
	}
}

func (u *unheard) fire(m *Machine, _ wake) {
	m.forgetWord(u.place)
	m.tidyPlace(u.place)
}
