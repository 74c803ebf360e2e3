package transfer

// An item whose bytes were all sent to another node, and whose receiver did not say how its take ended before the channel or the
// transfer was over, may be consumed or not. It stays where it is until the receiver's word comes: the home asks for it as
// soon as there is a channel. A node that stays away for long may have lost it with its processes: whoever else looks for the item gets it.
// But it may as well be back later, and until somebody else does its word counts. So long the item counts as one of the node's gets: a node
// could ask for as many as it may, go away and come back for more, and each would be asked about.

type doubtName struct {
	node string
	xfer XferID
}

// doubt begins to wait for the word.
func (m *Machine) doubt(k *seeker) {
	if m.cfg.Broken.Doubt {
		m.unseek(k)
		return
	}
	delete(m.seekers, k.id)
	k.state, k.until = seekDoubt, m.now+2*m.cfg.Linger
	m.doubts[doubtName{k.peer.node, k.id.Xfer}] = k
	m.askDoubt(k)
}

// doubtOver: the word did not come for long. A pipe's next receiver numbers what there is anew, and what is read by its key is read again:
// of these nothing is kept in doubt.
func (m *Machine) doubtOver(k *seeker) {
	if it := k.item; it == nil || it.form == MatchKey || len(k.place.early) > 0 || m.cfg.Broken.Outage {
		m.unseek(k)
	} else {
		it.doubt = k
		m.setFree(it)
	}
}

// yieldDoubts lets go of a pipe's items that its last receiver may have received long ago, for the next one.
func (m *Machine) yieldDoubts(p *place) {
	for _, k := range sortSeekers(m.doubts, func(k *seeker) bool { return k.place == p && k.item != nil && k.item.doubt == k }) {
		m.unseek(k)
	}
}

// undoubt: somebody else gets the item.
func (m *Machine) undoubt(it *item) {
	if k := it.doubt; k != nil {
		it.doubt, k.item = nil, nil
		m.dropSeeker(k)
	}
}

// askDoubt asks, now and again: whoever hears that its transfer is over says how it ended.
func (m *Machine) askDoubt(k *seeker) {
	m.send(k.peer, &MsgAbort{Xfer: k.id.Xfer, Cause: because(PeerGone, "the transfer was over at node %q before it heard how it ended", m.cfg.Node)})
	m.arm(&k.deadline, k, wakeDeadline, min(m.now+m.cfg.Resend, k.until))
}

// askDoubts asks a node that is back. Its answer is waited for as if it had not been away.
func (m *Machine) askDoubts(p *peer) {
	for _, k := range sortSeekers(m.doubts, func(k *seeker) bool { return k.peer == p }) {
		if it := k.item; it != nil && it.doubt == k {
			it.doubt = nil
			it.reserve(k)
		}
		k.until = m.now + 2*m.cfg.Linger
		m.askDoubt(k)
	}
}

// settleDoubt is the receiver's word.
func (m *Machine) settleDoubt(p *peer, x XferID, done bool) {
	if p == nil || len(m.doubts) == 0 {
		return
	}
	k := m.doubts[doubtName{p.node, x}]
	switch {
	case k == nil:
	case done && k.item != nil:
		m.consumedBy(k)
	default:
		m.unseek(k)
	}
}

// abandonSeek ends a get of another node that is not heard of any more.
func (m *Machine) abandonSeek(k *seeker) {
	switch {
	case m.serves[k.id] != nil: // the transfer's end tells
	case k.state == seekFound && k.item != nil && k.item.bytes == 0:
		m.doubt(k) // its receiver has all that it needs
	default:
		m.unseek(k)
	}
}
