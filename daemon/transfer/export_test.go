package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// HeldFor is what counts against MaxHeld of a node.
func (m *Machine) HeldFor(node string) int {
	if p := m.peers[node]; p != nil {
		return p.held
	}
	return 0
}

// Uses is how many operations a session is told about.
func (m *Machine) Uses(s SessionID) int { return len(m.sessions[s].uses) }

// Had is how many ranks the instance of a session is known to have or to have had.
func (m *Machine) Had(s SessionID) int { return len(m.sessions[s].engine.had) }

// Peers is how many nodes are known, and Lanes how many windows there are to them.
func (m *Machine) Peers() int { return len(m.peers) }
func (m *Machine) Lanes() int { return len(m.lanes) }

// Missing is how many runs of blocks a take keeps that its producer lacks.
func (m *Machine) Missing(x XferID) int { return len(m.takes[x].missing) }

// Remembered is what takes and offers that have ended and are remembered for peers still refer to: block ids, segments and grants.
func (m *Machine) Remembered() (ids, segs, grants int) {
	ofOp := func(o *op) int { return layout.CountIDs(o.held1[0].lists) }
	for _, t := range m.takes {
		if t.stage != stageReleased {
			continue
		}
		ids += ofOp(&t.op) + layout.CountIDs(t.in.Blocks) + len(t.missing) + len(t.failed)
		if t.get != nil {
			ids += layout.CountIDs(t.get.in.Blocks) + len(t.get.in.Tokens)
		}
		segs += len(t.covered)
		for _, seg := range t.segs {
			if seg != &t.seg0 {
				segs++
			}
			if seg.grant != nil {
				grants++
			}
		}
	}
	for _, e := range m.allPast() {
		if e.offer == nil {
			continue
		}
		for _, mb := range e.offer.members {
			ids += ofOp(&mb.op) + layout.CountIDs(mb.segs1[0].blocks)
			segs += len(mb.segs)
		}
	}
	return ids, segs, grants
}

// RememberedOffers is how many offers are remembered for the sake of their takes.
func (m *Machine) RememberedOffers() (n int) {
	for _, e := range m.allPast() {
		if e.offer != nil {
			n++
		}
	}
	return n
}

// Waits is how many waits there are for the progress of a session.
func (m *Machine) Waits(s SessionID) int { return len(m.sessions[s].waits) }

func (m *Machine) allPast() (all []*serveEnd) {
	for _, p := range m.peers {
		all = append(all, p.past.queue...)
	}
	return all
}

// PastSize is how many ends of transfers are remembered for peers.
func (m *Machine) PastSize() int { return len(m.allPast()) }

// Items is how many there are in all pipes and lookup buffers.
func (m *Machine) Items() (n int) {
	for _, p := range m.places {
		if p.home != nil {
			n += p.home.items
		}
	}
	return n
}

// Claims is how many takes of an offer are remembered with it.
func (m *Machine) Claims(key string) int { return len(m.offers[key].claims) }

// Told is how many layouts are remembered to have been sent to a node.
func (m *Machine) Told(node string) int { return len(m.peers[node].told) }

// Known is how many layouts of a node are remembered.
func (m *Machine) Known(node string) int { return len(m.peers[node].knows) }

// Routes is how many names and addresses of peers are remembered.
func (m *Machine) Routes() int { return len(m.routes) }

// ParkedAt is how many takes wait under a key.
func (m *Machine) ParkedAt(key string) int { return len(m.parked[key]) }

// Outlived is how many offers a scheduler of a session's engine looks at when it comes.
func (m *Machine) Outlived(s SessionID) int { return len(m.sessions[s].engine.outlived) }

// Away is how many regions without memory each operation of a session looks at.
func (m *Machine) Away(id SessionID) int {
	s := m.sessions[id]
	if s.layout == nil { // nor does it look at any
		return 0
	}
	return len(s.invalid)
}
