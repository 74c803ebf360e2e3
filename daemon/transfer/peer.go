package transfer

import (
	"cmp"
	"maps"
	"slices"
)

// peer is another node, and the channel to it.
type peer struct {
	node    string
	up      bool
	epoch   uint64
	life    uint64              // incarnation of the peer's daemon
	told    map[[32]byte]bool   // layouts sent on this channel
	knows   map[[32]byte]*known // layouts received on this channel
	known   int                 // what those take, as their cost
	serves  int                 // takes of the peer that are served here
	seekers int                 // gets of the peer that look for items here
	held    int                 // what counts against MaxHeld: of both, of its grants to takes here, and of its layouts that takes use
	ends    int                 // receiving ends of the peer that are remembered here
	landing int                 // items on their way from it to gets here
	routes  []*route            // that lead to it, in the order in which they were found
	fencing map[XferID]*serve   // being fenced, of channels that are lost
	past    past
	gone    timer // runs while the peer is not up
}

func newPeer(node string) *peer {
	return &peer{node: node, told: map[[32]byte]bool{}, knows: map[[32]byte]*known{}, fencing: map[XferID]*serve{}, past: newPast()}
}

// What bounds the layouts that a peer can make this node remember: their number, and what they take, in units of 4 bytes.
const (
	maxKnown     = 4096
	maxKnownCost = 16 << 20
)

func (m *Machine) peerUp(ev PeerUp) {
	p := m.peers[ev.Node]
	if p == nil {
		p = newPeer(ev.Node)
		m.peers[ev.Node] = p
	}
	if p.up && p.epoch != ev.Epoch {
		m.lose(p, because(PeerGone, "the channel to node %q was replaced by a newer one", ev.Node))
	}
	if !p.up {
		p.up, p.epoch, p.life = true, ev.Epoch, ev.Incarnation
		m.disarm(&p.gone)
		m.resayEnds(p)
		m.askDoubts(p)
	}
	for _, hint := range ev.Hints {
		if r := m.routes[hint]; r != nil && hint != ev.Node {
			m.leads(r, p)
		}
	}
	m.depart(p)
}

func (m *Machine) peerDown(ev PeerDown) {
	if p := m.peers[ev.Node]; p != nil && p.up && p.epoch == ev.Epoch {
		m.lose(p, ev.Cause)
	}
}

// lose ends what depended on a channel.
func (m *Machine) lose(p *peer, why Cause) {
	p.up = false
	cause := because(PeerGone, "the channel to node %q went down: %s", p.node, why.Text)
	for _, v := range m.servesOf(p) {
		v.unlinked = true
		v.abort(m, cause)
		if m.serves[v.leg.id] == v {
			p.fencing[v.leg.id.Xfer] = v
		}
	}
	m.loseEnds(p)
	m.forgetRoutes(p, 0)
	for _, t := range m.takesOf(p) {
		t.unlinked(m, cause)
	}
	for _, k := range m.keyOpsOf(p) {
		k.peer, k.asked = nil, false
		m.reach(k.hint, k)
	}
	p.told = map[[32]byte]bool{} // now, not when it is back: most nodes that go come back under another name, or not at all
	m.forgetLayouts(p)
	m.arm(&p.gone, p, wakeLinger, m.now+m.cfg.Linger)
}

// fire forgets a node of which nothing is left. Nodes may come under ever new names, and would pile up otherwise. The
// next channel to the node has a new epoch, and tells all that has to be known of it.
func (p *peer) fire(m *Machine, _ wake) {
	if p.used() || len(m.takesOf(p)) > 0 {
		m.arm(&p.gone, p, wakeLinger, m.now+m.cfg.Linger)
		return
	}
	delete(m.peers, p.node)
	maps.DeleteFunc(m.lanes, func(key laneKey, _ *lane) bool { return key.peer == p.node })
}

// used says whether anything here, other than takes, is about the node.
func (p *peer) used() bool {
	return p.serves+p.seekers+p.held+p.ends+p.landing+len(p.routes)+len(p.past.queue) > 0
}

func (m *Machine) servesOf(p *peer) []*serve {
	var out []*serve
	for _, v := range m.serves {
		if v.peer == p && v.leg.id.Epoch == p.epoch {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b *serve) int { return cmp.Compare(a.leg.id.Xfer, b.leg.id.Xfer) })
	return out
}

func (m *Machine) takesOf(p *peer) []*take {
	var out []*take
	for _, t := range m.takes {
		if t.peer == p {
			out = append(out, t)
		}
	}
	sortTakes(out)
	return out
}

func sortTakes(takes []*take) {
	slices.SortFunc(takes, func(a, b *take) int { return cmp.Compare(a.leg.id.Xfer, b.leg.id.Xfer) })
}

// peerMsg drops what comes from an epoch that is over.
func (m *Machine) peerMsg(ev *PeerMsg) {
	if p := m.peers[ev.Node]; p != nil && p.up && p.epoch == ev.Epoch {
		m.message(p, ev.Msg)
	}
}
