package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// What was put can be received for a while after its sender's session is over, closed or dead. The blocks of its arena
// stay, and nothing else of it. Receivers take what is left; then they hear that it was sealed, or that its sender is gone.

// stay keeps the home of a session that is over. It returns false if there is nothing to keep. An owner, who may name any
// number of engines, gets no new home while as many of its homes stay as one engine may have ends; a user, who may be any
// number of owners, while four times as many do.
func (h *home) stay(m *Machine, s *session, cause Cause) bool {
	if !s.closed || h.ended || h.items == 0 || h.gone != nil {
		return false
	}
	h.gone = &cause
	s.lingers = h
	m.lingering.add(s.testator(), 1)
	m.arm(&h.over, h, wakeLinger, m.now+h.linger)
	m.rematch(h)
	return true
}

// fire ends the home: its linger is over.
func (h *home) fire(m *Machine, _ wake) {
	m.endHome(h, Failed, *h.gone, because(PeerGone, "%s: its sender is gone, and what it had put is lost: %s not received within %s (linger): %s", h.place, items(h.items), duration(h.linger), h.gone.Text))
}

// farewell is what receivers hear once everything was received; OK while more may come. The words "was closed by its
// sender", here and in noMore, matter: by these words, iteration in Python tells the end of what was sent from other
// ends (python/kvpipe/pipe.py).
func (h *home) farewell() Cause {
	switch {
	case h.sealed:
		return because(Closed, "%s was closed by its sender, and everything in it was received", h.place)
	case h.gone != nil && h.broken != nil:
		return h.gap()
	case h.gone != nil:
		return because(PeerGone, "%s: its sender is gone, and everything that it had put was received: %s", h.place, h.gone.Text)
	}
	return Cause{}
}

// noMore is what an end hears when it asks for an item after the last.
func (h *home) noMore(e *end) Cause {
	n := h.pipe.Next() - e.base
	switch {
	case h.sealed:
		return because(Closed, "%s was closed by its sender after %s", h.place, items(n))
	case h.broken != nil:
		return h.gap()
	}
	return because(PeerGone, "%s: its sender is gone after %s: %s", h.place, items(n), h.gone.Text)
}

// rematch looks again at the seekers of a pipe that wait for items which will not come.
func (m *Machine) rematch(h *home) {
	for _, k := range h.waiters() {
		if k.match == MatchNext && k.state == seekWaiting {
			m.unqueue(k)
			m.matchSeeker(k)
		}
	}
}

// leftBehind says, once, what has to stay of the memory of a sender that is gone: when nobody reads items any more that
// have ended. It is called after each transfer that ends there, so it does not look at the items before or after that.
func (m *Machine) leftBehind(s *session) {
	if s.orphaned || s.legs > s.lingers.legs {
		return
	}
	var keep [][]layout.BlockList
	for _, it := range s.lingers.all() {
		if len(it.segs[0].blocks) > 0 {
			keep = append(keep, it.segs[0].blocks)
		}
	}
	s.orphaned = true
	m.emit(SessionOrphaned{Session: s.id, Layout: s.layout, Keep: keep})
}
