package transfer

// A pipe may be over before anybody came to receive: sealed with nothing in it, or broken at its first item. Nothing of it
// has to stay but that word, for whoever comes first within the linger; else that receiver would wait for another sender.
// The name is free for one at once.

// unheard is how a pipe ended that no receiver has met.
type unheard struct {
	place *place
	by    testator
	token []byte
	cause Cause
	over  timer
}

// leaveWord notes how a home ends, if its receiver is still to come. An owner, who may name any number of engines, leaves
// no more of these notes than one engine may have ends; a user, who may be any number of owners, four times as many.
func (m *Machine) leaveWord(h *home, verdict Cause) {
	by := h.bind.by.testator()
	if m.cfg.Broken.Unheard || h.place.buffer || h.met || h.items > 0 || !h.sealed && h.broken == nil || !m.unheard.room(by, 1, m.cfg.MaxPipes) {
		return
	}
	u := &unheard{place: h.place, by: by, token: h.token, cause: verdict}
	h.place.unheard = u
	m.unheard.add(by, 1)
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
	m.unheard.add(u.by, -1)
}

func (u *unheard) fire(m *Machine, _ wake) {
	m.forgetWord(u.place)
	m.tidyPlace(u.place)
}
