package transfer

import "container/heap"

// grave remembers the key of an offer that ended, and drops that came before their offer.
type grave struct {
	key   string
	token []byte // of the offer; nil: there was none
	how   string
	by    string // engine
	at    Time
	drops []dropNote

	watches []watchNote
}

// watchNote is a watch that waits for the offer; by: nil is this node.
type watchNote struct {
	by  *peer
	msg MsgKey
}

type dropNote struct {
	engine string
	token  []byte
}

// graveyard keeps graves for a while. Each engine of this node, and each peer, has a plot of its own. When there are too many graves the
// largest plot loses its oldest one, so that who ends offers by the thousand has its own forgotten, and not those of others.
type graveyard struct {
	keys    map[string]*grave
	plots   map[plotName]*plot
	largest plots
	size    int // graves in all plots
	watches int // of all graves
}

// plotName is an engine of this node, or a node.
type plotName struct{ node, engine, owner string }

// plot is its graves, oldest first; never empty.
type plot struct {
	name  plotName
	queue []*grave
	pos   int // in largest
	timer timer
}

// plots is a heap, the largest first.
type plots []*plot

func (h plots) Len() int           { return len(h) }
func (h plots) Less(i, j int) bool { return len(h[i].queue) > len(h[j].queue) }
func (h plots) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].pos, h[j].pos = i, j }
func (h *plots) Push(x any)        { p := x.(*plot); p.pos = len(*h); *h = append(*h, p) }
func (h *plots) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}

func (m *Machine) bury(o *offer, how string) {
	e := o.engine.key
	g := &grave{key: o.key, token: o.token, how: how, by: e.name, at: m.now}
	for _, c := range o.claims {
		if c.instance == dropped && !o.joined { // the other ranks' offers are still to come
			g.drops = append(g.drops, dropNote{c.engine, o.token})
		}
	}
	m.remember(g, plotName{engine: e.name, owner: e.owner})
}

// note remembers something about a key that has no offer yet, for who asks: an engine of this node, or a peer.
func (m *Machine) note(p *peer, msg *MsgKey) *grave {
	name := plotName{engine: msg.Engine}
	if p != nil {
		name = plotName{node: p.node}
	}
	g := &grave{key: string(msg.Key), at: m.now}
	m.remember(g, name)
	return g
}

func (m *Machine) remember(g *grave, name plotName) {
	y := &m.graves
	for y.size >= m.cfg.MaxGraves && y.size > 0 {
		y.largest[0].forget(m)
	}
	p := y.plots[name]
	if p == nil {
		p = &plot{name: name}
		y.plots[name] = p
		heap.Push(&y.largest, p)
		m.arm(&p.timer, p, wakeGraves, g.at+m.cfg.Graves)
	}
	y.keys[g.key] = g
	p.queue = append(p.queue, g)
	y.size++
	heap.Fix(&y.largest, p.pos)
}

// forget forgets the oldest.
func (p *plot) forget(m *Machine) {
	y, g := &m.graves, p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	y.size--
	y.watches -= len(g.watches)
	if y.keys[g.key] == g {
		delete(y.keys, g.key)
	}
	if len(p.queue) > 0 {
		heap.Fix(&y.largest, p.pos)
		return
	}
	heap.Remove(&y.largest, p.pos)
	delete(y.plots, p.name)
	m.disarm(&p.timer)
}

func (p *plot) fire(m *Machine, _ wake) {
	for len(p.queue) > 0 {
		if until := p.queue[0].at + m.cfg.Graves; until > m.now {
			m.arm(&p.timer, p, wakeGraves, until)
			return
		}
		p.forget(m)
	}
}

// verdict says why a key whose offer ended cannot be had, to whom has its token. Another token is that of another offer under the
// same key, which may still come.
func (g *grave) verdict(m *Machine, token []byte) (Cause, bool) {
	if g.token == nil || !sameToken(g.token, token) {
		return Cause{}, false
	}
	return because(Expired, "key %s: its offer by engine %q on node %q %s %s ago; make a new request",
		short(g.key), g.by, m.cfg.Node, g.how, took(m.now-g.at)), true
}

// applyDrops counts drops that came before the offer, and answers those who watch.
func (m *Machine) applyDrops(o *offer) {
	g := m.graves.keys[o.key]
	if g == nil {
		return
	}
	delete(m.graves.keys, o.key)
	for _, d := range g.drops {
		if sameToken(d.token, o.token) {
			o.drop(m, d.engine)
		}
	}
	for i := range g.watches {
		m.keyAsked(g.watches[i].by, &g.watches[i].msg)
	}
}

// dropped is what a drop has instead of an instance: no client can choose it.
const dropped = "\x00"

// drop counts a consumer that needs nothing.
func (o *offer) drop(m *Machine, engine string) {
	if !o.ended {
		c := o.enter(claimName{engine: engine, instance: dropped}, 1)
		o.commit(m, c, 0)
	}
}
