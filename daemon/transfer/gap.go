package transfer

// An item of a pipe that is refused leaves a gap: whatever came behind it would be out of its place. Its sender may have closed its end by
// then and hear of it no more, so the pipe itself remembers. Entries of a lookup buffer are independent: of one that is refused only who
// inserted it is told.

// breakPipe: a PUT was refused. Nothing is put behind it, for the same cause, and who waits for more is told so.
func (m *Machine) breakPipe(s *session, in *PutOp, cause Cause) {
	b, none := bindOf(s, in.Target)
	if none.Reason != OK || b.home == nil || b.place.buffer || b.home.final() || m.cfg.Broken.Gap {
		return
	}
	b.home.broken = &cause
	m.rematch(b.home)
}

// final says that nothing more is put.
func (h *home) final() bool { return h.sealed || h.broken != nil || h.gone != nil }

// gap is what receivers hear once they have what was put before.
func (h *home) gap() Cause {
	reason := PeerGone
	if h.broken.Reason == Restarted {
		reason = Restarted
	}
	return because(reason, "%s: an item that was sent was not taken, and it ends before that: %s", h.place, h.broken.Text)
}
