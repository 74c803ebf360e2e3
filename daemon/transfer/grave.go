package transfer

// grave remembers the key of an offer that ended; the configuration calls it a tombstone. A grave without an offer
// keeps drops and watches that came before their offer.
type grave struct {
	key   string
	token []byte // of the offer; nil: there was none
	how   string
	by    string // the offer's engine
	ended Time   // when the offer did
	at    Time   // when it was laid in its plot, or the last drop came to it

	drops   []dropNote
	watches []watchNote

	plot         *plot
	older, newer *grave // in the plot
}

// watchNote is a watch that waits for the offer. by is the peer that watches; nil is this node. A peer asks again on each
// new channel, and a restarted peer numbers its watches anew. So a watch that came by an earlier channel is nobody's.
type watchNote struct {
	by    *peer
	epoch uint64 // of the channel
	heard Time   // when it was asked last
	msg   MsgKey
}

// size is what a grave counts for. Its first drop counts nothing extra, since the grave may be there for that drop.
func (g *grave) size() int { return 1 + len(g.watches) + max(len(g.drops)-1, 0) }

func (m *Machine) newWatchNote(p *peer, msg *MsgKey) watchNote {
	w := watchNote{by: p, heard: m.now, msg: *msg}
	if p != nil {
		w.epoch = p.epoch
	}
	return w
}

func (w *watchNote) same(o *watchNote) bool {
	return w.by == o.by && w.epoch == o.epoch && w.msg.ID == o.msg.ID
}

// past says whether the channel that the watch came by is gone, or the watch is over: its offer is not to be renewed for
// nobody. A peer does not say that a watch of it is over, but no longer asks.
func (w *watchNote) past(m *Machine) bool {
	if w.by == nil {
		return m.keyOps[w.msg.ID] == nil
	}
	return !w.by.up || w.by.epoch != w.epoch || w.heard+m.cfg.Linger < m.now
}

type dropNote struct {
	engine, instance string
	token            []byte
}

func (m *Machine) bury(o *offer, how string) {
	e := o.engine.key
	g := &grave{key: o.key, token: o.token, how: how, by: e.name, ended: m.now, at: m.now}
	for _, c := range o.claims {
		if c.dropped && !o.joined { // the offers of the other ranks are still to come
			g.drops = append(g.drops, dropNote{c.engine, c.instance, o.token})
		}
	}
	m.inter(g, plotName{engine: e.name, owner: e.owner})
}

// note makes a grave for a key that has no offer yet, on behalf of whoever asks: an engine of this node, or a peer.
func (m *Machine) note(p *peer, msg *MsgKey) *grave {
	name := plotName{engine: msg.Engine}
	if p != nil {
		name = plotName{node: p.node}
	} else if k := m.keyOps[msg.ID]; k != nil {
		name.owner = k.by.engine.key.owner
	}
	g := &grave{key: string(msg.Key), at: m.now}
	m.inter(g, name)
	return g
}

// verdict says why a key whose offer ended cannot be had, to those who have the offer's token. Another token is that of
// another offer under the same key, which may still come. The grave may stay longer than that, for drops of such an offer.
func (g *grave) verdict(m *Machine, token []byte) (Cause, bool) {
	if g.token == nil || !sameToken(g.token, token) || g.ended+m.cfg.TombstoneFor <= m.now || m.home.offers(g.key) {
		return Cause{}, false
	}
	return because(Expired, "key %s: its offer by engine %q on node %q %s %s ago; make a new request",
		short(g.key), g.by, m.cfg.Node, g.how, duration(m.now-g.ended)), true
}

// applyDrops counts the drops that came before the offer, and answers the watches that did.
func (m *Machine) applyDrops(o *offer) {
	g := m.graves.keys[o.key]
	if g == nil {
		return
	}
	m.unearth(g)
	for _, d := range g.drops {
		if sameToken(d.token, o.token) {
			o.drop(m, d.engine, d.instance)
		}
	}
	m.answerWatches(g)
}

// answerWatches answers the watches that waited at a grave which was removed.
func (m *Machine) answerWatches(g *grave) {
	for i := range g.watches {
		if w := &g.watches[i]; !w.past(m) {
			m.keyAsked(w.by, &w.msg)
		}
	}
}

// nobody is the instance in the claim of a drop that names none. No client can choose it.
const nobody = "\x00"

// drop counts a consumer that needs nothing, or that instance of it, which has taken the offer already.
func (o *offer) drop(m *Machine, engine, instance string) {
	if o.ended {
		return
	}
	if instance == "" {
		instance = nobody
	}
	c := o.enter(claimName{engine: engine, instance: instance}, 1)
	c.dropped = true
	o.commit(m, c, 0)
}
