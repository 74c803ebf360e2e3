package transfer

import (
	"cmp"
	"slices"
	"strings"
)

// route is what a client named: a node, or an address whose node becomes known with the channel.
type route struct {
	hint    string
	node    string // "": unknown
	found   Time   // when the node became known
	dialing bool
	tries   int
	last    Cause // why the last attempt failed
	retry   timer
	waiting travellers
}

// What addresses led to is remembered, because clients name the same ones again and again, and asking costs a
// connection. But only a few are remembered for one node, since there is no end of ways to spell it, and not for long:
// an address can become another node's while the channel to its old one lasts.
const (
	maxRoutes = 16
	routeAge  = 30 * Second
)

// reach calls t.arrive now if the peer's channel is up, else once it is, or t.stranded if it cannot be.
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
	if p := m.peers[r.node]; p != nil && p.up && m.now-r.found < routeAge {
		m.arrive(t, p)
		return
	}
	r.waiting.add(t)
	if !r.dialing && r.retry.pos == 0 {
		m.dial(r)
	}
}

func (m *Machine) dial(r *route) {
	r.dialing = true
	m.emit(Dial{Hint: r.hint})
}

// forgo takes a traveller off the list of those that wait for a channel.
func (m *Machine) forgo(hint string, t traveller) {
	r := m.routes[hint]
	if r == nil {
		return
	}
	r.waiting.remove(t)
	m.tidy(r)
}

// idle says whether nobody needs the route now.
func (r *route) idle() bool { return r.waiting.count() == 0 && !r.dialing }

// tidy forgets a route that nobody needs and that leads to no peer with a channel: hints come from clients, who may name any number.
func (m *Machine) tidy(r *route) {
	if p := m.peers[r.node]; !r.idle() || p != nil && p.up {
		return
	}
	m.unknow(r)
	m.disarm(&r.retry)
	delete(m.routes, r.hint)
}

func (r *route) fire(m *Machine, _ wake) {
	if r.waiting.count() > 0 && !r.dialing {
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

// notReached words the cause. It names the peer only once, although what came of dialing it may begin with its name.
func notReached(hint, limit string, c Cause) Cause {
	return because(PeerGone, "peer %q was not reached within %s: %s", hint, limit, strings.TrimPrefix(c.Text, "peer "+hint+" "))
}

// leads notes where a route leads.
func (m *Machine) leads(r *route, p *peer) {
	m.unknow(r)
	r.node, r.found, r.dialing = p.node, m.now, false
	p.routes = append(p.routes, r)
}

// unknow takes back what leads noted.
func (m *Machine) unknow(r *route) {
	if p := m.peers[r.node]; p != nil {
		p.routes = slices.DeleteFunc(p.routes, func(o *route) bool { return o == r })
	}
	r.node = ""
}

// depart sends everybody on who waits for that node, in the order in which they came to each route.
func (m *Machine) depart(p *peer) {
	leave := slices.Clone(p.routes)
	if r := m.routes[p.node]; r != nil {
		leave = append(leave, r)
	}
	slices.SortFunc(leave, func(a, b *route) int { return cmp.Compare(a.hint, b.hint) })
	for _, r := range leave {
		m.sendOn(r, p)
	}
	m.forgetRoutes(p, maxRoutes)
}

// sendOn sends on those who wait at one route.
func (m *Machine) sendOn(r *route, p *peer) {
	r.tries, r.last, r.dialing = 0, Cause{}, false
	m.disarm(&r.retry)
	for _, t := range r.waiting.takeAll() {
		m.arrive(t, p)
	}
	m.tidy(r)
}

// arrive calls t.arrive, for a peer that may turn out to be this node.
func (m *Machine) arrive(t traveller, p *peer) {
	if p.node == m.cfg.Node {
		p = nil
	}
	t.arrive(m, p)
}

// forgetRoutes forgets where routes lead that nobody needs now, the oldest first, until no more than most are left.
func (m *Machine) forgetRoutes(p *peer, most int) {
	for _, r := range slices.Clone(p.routes) {
		if len(p.routes) <= most {
			return
		}
		if r.idle() {
			m.unknow(r)
			m.tidy(r)
		}
	}
}

func (m *Machine) dialFailed(ev DialFailed) {
	r := m.routes[ev.Hint]
	if r == nil {
		return
	}
	r.dialing, r.last = false, ev.Cause
	if p := m.peers[cmp.Or(r.node, r.hint)]; p != nil && p.up && !ev.Final {
		r.found = m.now // the peer's channel is there all the same
		m.sendOn(r, p)
		return
	}
	if ev.Final {
		for _, t := range r.waiting.takeAll() {
			t.stranded(m, ev.Cause)
		}
	}
	if ev.Final || r.waiting.count() == 0 {
		m.unknow(r)
		m.tidy(r)
		return
	}
	pause := m.cfg.Redial << min(r.tries, 3)
	r.tries++
	m.arm(&r.retry, r, wakeRedial, m.now+pause+Time(m.cfg.Random()%uint64(pause)))
}
