package transfer

// A refused item leaves a gap in a pipe: whatever came behind it would be in the wrong place. Its sender may have
// closed its end by then and not hear of it, so the pipe itself remembers. Entries of a lookup buffer are independent:
// only the end that inserted it hears that an entry was refused.

// breakPipe notes that a PUT was refused. What is put behind it is refused with the same cause, and those who wait for
// more are told.
func (m *Machine) breakPipe(s *session, in *PutOp, cause Cause) {
	b, none := bindOf(s, in.Target)
	if none.Reason != OK || b.home == nil || b.place.buffer || b.home.final() || m.cfg.Broken.Gap {
		return
	}
	b.home.broken = &cause
	m.rematch(b.home)
}

// final says whether nothing more can be put.
func (h *home) final() bool { return h.sealed || h.broken != nil || h.gone != nil }

// gap is what receivers hear once they have received what was put before the gap.
func (h *home) gap() Cause {
	reason := PeerGone
	if h.broken.Reason == Restarted {
		reason = Restarted
	}
	return because(reason, "%s: an item that was sent was not taken, and it ends before that: %s", h.place, h.broken.Text)
}
