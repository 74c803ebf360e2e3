package transfer

// HeldFor is what counts against MaxHeld of a node.
func (m *Machine) HeldFor(node string) int { return m.peers[node].held }

// Missing is how many runs of blocks a take keeps that its producer lacks.
func (m *Machine) Missing(x XferID) int { return len(m.takes[x].missing) }
