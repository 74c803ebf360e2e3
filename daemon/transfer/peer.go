package transfer

import (
	"cmp"
	"slices"
	"strings"
)

// peer is another node, and the channel to it.
type peer struct {
	node    string
	up      bool
	epoch   uint64
	life    uint64              // incarnation of its daemon
	told    map[[32]byte]bool   // layouts sent on this channel
	knows   map[[32]byte]*known // layouts received on this channel
	known   int                 // what those take, as their cost
	serves  int                 // of it, here
	seekers int                 // of it, here: gets that look for items
	held    int                 // block ids and tokens of both, what it granted here, and the layouts that takes go by
	ends    int                 // of it, remembered here
	landing int                 // from it: items on their way to gets here
	fencing map[XferID]*serve   // of channels that are lost
	past    past
}

func newPeer(node string) *peer {
	return &peer{node: node, told: map[[32]byte]bool{}, knows: map[[32]byte]*known{}, fencing: map[XferID]*serve{}, past: past{ends: map[Leg]*serveEnd{}, unsure: map[XferID]*serveEnd{}}}
}

// What bounds the layouts that a peer can make this node remember: their number, and what they take, in block ids of 4 bytes.
const (
	maxKnown     = 4096
	maxKnownCost = 16 << 20
)

// route is what a client named: a node, or an address whose node the channel will tell.
type route struct {
	hint    string
	node    string // "" unknown
	dialing bool
	tries   int
	last    Cause // why it could not be reached lately
	retry   timer
	waiting []traveller
}

// traveller is an operation that needs a peer.
type traveller interface {
	arrive(m *Machine, p *peer) // nil: this node
	stranded(m *Machine, cause Cause)
}

// reach calls t.arrive now if the peer's channel is up, else once it is; stranded if it cannot be.
func (m *Machine) reach(hint string, t traveller) {
	if hint == "" || hint == m.cfg.Node {
		t.arrive(m, nil)
		return
	}
	if p := m.peers[hint]; p != nil && p.up {
		t.arrive(m, p)
		return
	}
	r := m.routes[hint]
	if r == nil {
		r = &route{hint: hint}
		m.routes[hint] = r
	}
	if r.node == m.cfg.Node {
		t.arrive(m, nil)
		return
	}
	if p := m.peers[r.node]; p != nil && p.up {
		t.arrive(m, p)
		return
	}
	r.waiting = append(r.waiting, t)
	if !r.dialing && r.retry.pos == 0 {
		m.dial(r)
	}
}

func (m *Machine) dial(r *route) {
	r.dialing = true
	m.emit(Dial{Hint: r.hint})
}

// forgo takes an operation off the list of those that wait for a channel.
func (m *Machine) forgo(hint string, t traveller) {
	r := m.routes[hint]
	if r == nil {
		return
	}
	r.waiting = slices.DeleteFunc(r.waiting, func(w traveller) bool { return w == t })
	m.tidy(r)
}

// tidy forgets a route that nobody needs: hints come from clients.
func (m *Machine) tidy(r *route) {
	if len(r.waiting) == 0 && !r.dialing && r.node == "" {
		m.disarm(&r.retry)
		delete(m.routes, r.hint)
	}
}

func (r *route) fire(m *Machine, _ wake) {
	if len(r.waiting) > 0 && !r.dialing {
		m.dial(r)
	}
	m.tidy(r)
}

// trouble says why a peer has not been reached so far.
func (m *Machine) trouble(hint string) Cause {
	if r := m.routes[hint]; r != nil {
		return r.last
	}
	return Cause{}
}

// notReached names the peer once: what came of dialing it may begin with its name.
func notReached(hint, limit string, c Cause) Cause {
	return because(PeerGone, "peer %q was not reached within %s: %s", hint, limit, strings.TrimPrefix(c.Text, "peer "+hint+" "))
}

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
		m.resayEnds(p)
		m.askDoubts(p)
	}
	for _, hint := range ev.Hints {
		if r := m.routes[hint]; r != nil {
			r.node, r.dialing = ev.Node, false
		}
	}
	m.depart(p)
}

// depart sends everybody on who waits for that node, in the order in which they came to each route.
func (m *Machine) depart(p *peer) {
	for _, r := range m.sortedRoutes() {
		if r.hint != p.node && r.node != p.node {
			continue
		}
		r.tries, r.last, r.dialing = 0, Cause{}, false
		m.disarm(&r.retry)
		waiting := r.waiting
		r.waiting = nil
		for _, t := range waiting {
			if p.node == m.cfg.Node {
				t.arrive(m, nil)
			} else {
				t.arrive(m, p)
			}
		}
	}
}

func (m *Machine) sortedRoutes() []*route {
	out := make([]*route, 0, len(m.routes))
	for _, r := range m.routes {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *route) int { return cmp.Compare(a.hint, b.hint) })
	return out
}

func (m *Machine) dialFailed(ev DialFailed) {
	r := m.routes[ev.Hint]
	if r == nil {
		return
	}
	r.dialing, r.last = false, ev.Cause
	if p := m.peers[r.node]; p != nil && p.up && p.node != "" || m.peers[r.hint] != nil && m.peers[r.hint].up {
		return // it came up meanwhile, by the peer's own dial
	}
	if ev.Final {
		waiting := r.waiting
		r.waiting = nil
		for _, t := range waiting {
			t.stranded(m, ev.Cause)
		}
		r.node = ""
		m.tidy(r)
		return
	}
	if len(r.waiting) == 0 {
		m.tidy(r)
		return
	}
	pause := m.cfg.Redial << min(r.tries, 3)
	r.tries++
	m.arm(&r.retry, r, wakeRedial, m.now+pause+Time(m.cfg.Random()%uint64(pause)))
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
		if v.state == serveParked {
			v.refuse(m, cause)
		} else {
			v.abort(m, cause)
		}
		if m.serves[v.leg.id] == v {
			p.fencing[v.leg.id.Xfer] = v
		}
	}
	m.loseEnds(p)
	for _, r := range m.sortedRoutes() {
		if r.node == p.node && len(r.waiting) == 0 {
			r.node = ""
			m.tidy(r)
		}
	}
	for _, t := range m.takesOf(p) {
		t.unlinked(m, cause)
	}
	for _, k := range m.keyOpsOf(p) {
		k.peer, k.asked = nil, false
		m.reach(k.hint, k)
	}
	p.told = map[[32]byte]bool{} // now, and not when it is back: nodes get other names, and most that go never are
	m.forgetLayouts(p)
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
