package transfer

// An item is in doubt if its bytes were all sent to another node, and the channel or the transfer was over before the
// receiver said how its take ended: it may be consumed or not. The item stays where it is until the receiver's word
// comes; the home asks for that as soon as there is a channel. A node that stays away for long may have lost the item
// with its processes, so then whoever else looks for the item gets it. But the node may also be back later, and until
// somebody else has the item, its word counts. All that time the item counts as one of the node's gets. Otherwise a
// node could ask for as many as it may, go away and come back for more, and each of them would have to be asked about.

type doubtName struct {
	node string
	xfer XferID
}

// doubt begins to wait for the receiver's word.
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

// doubtOver gives up waiting for a word that did not come for long. Some items are not kept in doubt after that: those
// of a pipe for which the next receiver waits, since it numbers what there is anew, and those that are read by key,
// since they are simply read again.
func (m *Machine) doubtOver(k *seeker) {
	if it := k.item; it == nil || it.form == MatchKey || len(k.place.early) > 0 || m.cfg.Broken.Outage {
		m.unseek(k)
	} else {
		it.doubt = k
		m.setFree(it)
	}
}

// yieldDoubts lets go of a pipe's items that its last receiver may have received long ago, in favour of the next one.
func (m *Machine) yieldDoubts(p *place) {
	for _, k := range sortSeekers(m.doubts, func(k *seeker) bool { return k.place == p && k.item != nil && k.item.doubt == k }) {
		m.unseek(k)
	}
}

// undoubt drops the doubt about an item that somebody else gets.
func (m *Machine) undoubt(it *item) {
	if k := it.doubt; k != nil {
		it.doubt, k.item = nil, nil
		m.dropSeeker(k)
	}
}

// askDoubt asks for the receiver's word, repeatedly. A node that hears that its transfer is over says how it ended.
func (m *Machine) askDoubt(k *seeker) {
	m.send(k.peer, &MsgAbort{Xfer: k.id.Xfer, Cause: because(PeerGone, "the transfer was over at node %q before it heard how it ended", m.cfg.Node)})
	m.arm(&k.deadline, k, wakeDeadline, min(m.now+m.cfg.Resend, k.until))
}

// askDoubts asks a node that is back. Its answer is awaited as if it had not been away.
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

// settleDoubt handles the receiver's word.
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

// abandonSeek ends a get of another node that is no longer heard of.
func (m *Machine) abandonSeek(k *seeker) {
	switch {
	case m.serves[k.id] != nil: // the end of the transfer decides
	case k.state == seekFound && k.item != nil && k.item.bytes == 0:
		m.doubt(k) // an item without bytes: its receiver may have all that it needs
	default:
		m.unseek(k)
	}
}
