package transfer

// linkLost handles the loss of one link of several. What was on its way through that link will never land, and nobody
// reports it. The takes that move over the channel ask for what is missing as soon as nothing lands for a moment,
// instead of being patient first.
func (m *Machine) linkLost(ev LinkLost) {
	p := m.peers[ev.Node]
	if p == nil || p.epoch != ev.Epoch {
		return
	}
	for _, t := range m.takesOf(p) {
		if t.phase != phaseMoving {
			continue
		}
		t.hasty = true
		if t.sent {
			t.settleLater(m)
		}
	}
}
