package transfer

// HeldFor is what counts against MaxHeld of a node.
func (m *Machine) HeldFor(node string) int { return m.peers[node].held }
