package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// What a peer can make this node keep is bounded in number (MaxParked, MaxEnds) and in bytes (MaxHeld, for what it asks
// for and what it grants together): a node with a good certificate may be mad all the same.

// mayHold says whether n more may be held for a peer, for something that it asks for or grants. n counts block ids and
// tokens, and other things by their size in these.
func (m *Machine) mayHold(p *peer, n int) Cause {
	if p == nil || p.held+n <= m.cfg.MaxHeld {
		return Cause{}
	}
	return because(Quota, "what node %q makes node %q keep, by what it waits for there and by what it grants to takes there, has the size of %d block ids, this would be %d more; "+
		"the limit is %d for both together: let some of that end first, or take less at a time", p.node, m.cfg.Node, p.held, n, m.cfg.MaxHeld)
}

// held counts what is kept of a GET: its tokens, and the take that it brought.
func (msg *MsgSeek) held() int {
	n := len(msg.Tokens)
	if msg.Take != nil {
		n += msg.Take.held()
	}
	return n
}

// held counts the block ids and ranks that are kept of a take.
func (msg *MsgTake) held() int { return layout.CountIDs(msg.Blocks) + rankCost*len(msg.Ranks) }

// drop stops counting a GET of another node.
func (k *seeker) drop() {
	k.peer.seekers--
	k.peer.held -= k.held
}

// letTakeGo forgets the take that a GET of another node brought, and stops counting its block ids.
func (k *seeker) letTakeGo() {
	if k.brought != nil {
		n := k.brought.held()
		k.held, k.peer.held, k.brought = k.held-n, k.peer.held-n, nil
	}
}

// mayEnter says whether an end of a peer is known here already, or there is room for it.
func (m *Machine) mayEnter(p *peer, name placeName, id endID) bool {
	if p.ends < m.cfg.MaxEnds {
		return true
	}
	pl := m.places[name]
	return pl != nil && pl.ends[id] != nil
}

// maySeek says whether a peer may wait here for one item more.
func (m *Machine) maySeek(p *peer, msg *MsgSeek, name placeName, id endID) Cause {
	switch {
	case p.seekers >= m.cfg.MaxParked:
		return because(Quota, "%d gets of node %q wait on node %q, the limit; let some of them end first", p.seekers, p.node, m.cfg.Node)
	case !m.mayEnter(p, name, id):
		return because(Quota, "node %q has %d receiving ends on node %q, the limit: close some", p.node, p.ends, m.cfg.Node)
	}
	return m.mayHold(p, msg.held())
}

// countEnd adds to the number of ends that the end's node has here, if that is another node.
func (m *Machine) countEnd(id endID, by int) {
	if p := m.peers[id.node]; p != nil {
		p.ends += by
	}
}
