package transfer

import (
	"container/heap"
	"slices"
)

// graveyard keeps graves for a while. Each engine of this node, and each peer, has a plot of its own. When there is too
// much to remember, the largest plot loses its oldest grave. So whoever ends offers by the thousand, or watches what
// never comes, has its own graves forgotten, not those of others.
type graveyard struct {
	keys    map[string]*grave
	plots   map[plotName]*plot
	largest plots
	size    int // graves, and what waits at them
}

// plotName is an engine of this node, or another node.
type plotName struct{ node, engine, owner string }

// plot has graves in the order of their age; it is never empty.
type plot struct {
	name           plotName
	oldest, newest *grave
	size           int // counted as in graveyard
	pos            int // index in graveyard.largest
	timer          timer
}

// plots is a heap, the largest first.
type plots []*plot

func (h plots) Len() int           { return len(h) }
func (h plots) Less(i, j int) bool { return h[i].size > h[j].size }
func (h plots) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].pos, h[j].pos = i, j }
func (h *plots) Push(x any)        { p := x.(*plot); p.pos = len(*h); *h = append(*h, p) }
func (h *plots) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}

// resize notes that a plot's size has changed by n.
func (y *graveyard) resize(p *plot, n int) {
	p.size += n
	y.size += n
	heap.Fix(&y.largest, p.pos)
}

// inter lays a grave in its plot. If there is no room, the oldest graves of the largest plots make room.
func (m *Machine) inter(g *grave, name plotName) {
	y := &m.graves
	for y.size >= m.cfg.MaxTombstones && y.size > 0 {
		m.unearth(y.largest[0].oldest)
	}
	p := y.plots[name]
	if p == nil {
		p = &plot{name: name}
		y.plots[name] = p
		heap.Push(&y.largest, p)
		m.arm(&p.timer, p, wakeGraves, g.at+m.cfg.TombstoneFor)
	}
	y.keys[g.key] = g
	g.plot, g.older = p, p.newest
	if p.newest == nil {
		p.oldest = g
	} else {
		p.newest.newer = g
	}
	p.newest = g
	y.resize(p, g.size())
}

// dropAt adds a drop to a grave. If there is no room, the oldest graves of the largest plot make room. If that would be
// this grave itself, there is none, and the drop is refused.
func (m *Machine) dropAt(g *grave, d dropNote) Cause {
	y, before := &m.graves, g.size()
	for len(g.drops) > 0 && y.size >= m.cfg.MaxTombstones && y.largest[0].oldest != g {
		m.unearth(y.largest[0].oldest)
	}
	if len(g.drops) >= maxParts || len(g.drops) > 0 && y.size >= m.cfg.MaxTombstones {
		return because(Quota, "key %s: its offer has not come to node %q, which remembers %d drops of it until then, the limit is %d, and %d keys and drops in all, the limit is %d; "+
			"drop it again once it is offered", short(g.key), m.cfg.Node, len(g.drops), maxParts, y.size, m.cfg.MaxTombstones)
	}
	g.drops = append(g.drops, d)
	y.resize(g.plot, g.size()-before)
	m.keepLonger(g)
	return Cause{}
}

// keepLonger makes a grave the newest in its plot, because a drop came to it: that is remembered as long as what is laid
// now, however old the grave was.
func (m *Machine) keepLonger(g *grave) {
	if g.at < m.now {
		name := g.plot.name
		m.unearth(g)
		g.at = m.now
		m.inter(g, name)
	}
}

// waitAt adds a watch to a grave, unless it is there already or there is no room: this grave has its most, or the
// largest plot, which would have to make room, is its own.
func (m *Machine) waitAt(g *grave, w watchNote) {
	y := &m.graves
	if i := slices.IndexFunc(g.watches, func(o watchNote) bool { return o.same(&w) }); i >= 0 {
		g.watches[i].heard = w.heard
		return
	}
	if len(g.watches) >= maxParts {
		return
	}
	for y.size >= m.cfg.MaxTombstones {
		if y.largest[0] == g.plot {
			return
		}
		m.unearth(y.largest[0].oldest)
	}
	g.watches = append(g.watches, w)
	y.resize(g.plot, 1)
}

// unearth removes a grave, with what waits at it.
func (m *Machine) unearth(g *grave) {
	y, p := &m.graves, g.plot
	if y.keys[g.key] == g {
		delete(y.keys, g.key)
	}
	if g.older == nil {
		p.oldest = g.newer
	} else {
		g.older.newer = g.newer
	}
	if g.newer == nil {
		p.newest = g.older
	} else {
		g.newer.older = g.older
	}
	g.older, g.newer = nil, nil
	y.resize(p, -g.size())
	if p.oldest == nil {
		heap.Remove(&y.largest, p.pos)
		delete(y.plots, p.name)
		m.disarm(&p.timer)
	}
}

func (p *plot) fire(m *Machine, _ wake) {
	for p.oldest != nil {
		if until := p.oldest.at + m.cfg.TombstoneFor; until > m.now {
			m.arm(&p.timer, p, wakeGraves, until)
			return
		}
		m.unearth(p.oldest)
	}
}
