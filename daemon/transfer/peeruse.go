package transfer

import (
	"cmp"
	"slices"
)

// PeerUse is how much another node uses of what it may make this one keep. Once nothing is under way, all of it is 0.
type PeerUse struct {
	Node  string
	Takes int // of MaxParked
	Gets  int // likewise
	Ends  int // of MaxEnds
	Held  int // of MaxHeld
}

// PeerUses lists the nodes that use anything.
func (m *Machine) PeerUses() []PeerUse {
	var out []PeerUse
	for _, p := range m.peers {
		if u := (PeerUse{Node: p.node, Takes: p.serves, Gets: p.seekers, Ends: p.ends, Held: p.held}); u != (PeerUse{Node: p.node}) {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b PeerUse) int { return cmp.Compare(a.Node, b.Node) })
	return out
}
