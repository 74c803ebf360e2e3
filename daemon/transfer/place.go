package transfer

import (
	"cmp"
	"fmt"
	"slices"
)

// placeName is what a pipe or lookup buffer is called on its node.
type placeName struct {
	buffer bool
	name   string
}

func (n placeName) String() string {
	if n.buffer {
		return fmt.Sprintf("buffer %s", short(n.name))
	}
	return fmt.Sprintf("pipe %s", short(n.name))
}

// place is a name on its home's node: who holds it, and who comes there for items. It exists while one of them does.
type place struct {
	placeName
	home     *home
	ends     map[endID]*end
	receiver *end      // a pipe's only one
	early    []*seeker // that came before the home, or before the last receiver's items were settled; in order of coming
}

// endID names a receiving end: on its node, by a number that the node draws.
type endID struct {
	node string // "": this one
	bind uint64
}

// end is a receiving end, as its home's node knows it.
type end struct {
	endID
	based   bool   // base is known
	base    uint64 // number of the item that is this end's 0
	met     bool   // it has seen a home
	verdict *Cause // that home is gone: why
	seekers int
	shorts  []*seeker // those that have an item reserved for which there was no room
	bound   bool      // its bind lives, as far as one knows here
	closed  bool      // it said that it does not: what comes late of it changes nothing
	forget  timer     // while closed
}

func (m *Machine) place(n placeName) *place {
	p := m.places[n]
	if p == nil {
		p = &place{placeName: n, ends: map[endID]*end{}}
		m.places[n] = p
	}
	return p
}

// tidyPlace forgets a name that nobody uses.
func (m *Machine) tidyPlace(p *place) {
	if p.home == nil && len(p.ends) == 0 && len(p.early) == 0 {
		delete(m.places, p.placeName)
	}
}

// enter returns the end of that name, new or as it is known.
func (m *Machine) enter(p *place, id endID) *end {
	e := p.ends[id]
	if e == nil {
		e = &end{endID: id, bound: true}
		p.ends[id] = e
		m.countEnd(id, 1)
	}
	return e
}

// leave ends an end: what it waits for and what is reserved for it.
func (m *Machine) leave(p *place, e *end) {
	e.bound = false
	if e.seekers > 0 { // of all ends of a peer, or of what it says are its ends, few have any: to look for them each time is long
		for _, k := range m.seekersOf(func(k *seeker) bool { return k.place == p && k.end == e }) {
			m.abandonSeek(k)
		}
	}
	m.giveShortsBack(e) // of this node's ends they are in no list of their own
	m.dropEnd(p, e)
}

// dropEnd forgets an end that is closed once nothing of it moves. What ended last of it may have done so already.
func (m *Machine) dropEnd(p *place, e *end) {
	if e.bound || e.seekers > 0 || p.ends[e.endID] != e {
		return
	}
	if e.forget.pos == 0 {
		delete(p.ends, e.endID)
		m.countEnd(e.endID, -1)
	}
	if p.receiver == e {
		p.receiver = nil
		m.wakeEarly(p)
	}
	m.tidyPlace(p)
}

// closedEnd remembers for a while that an end of another node is closed.
type closedEnd struct {
	place *place
	end   *end
}

func (x closedEnd) fire(m *Machine, _ wake) { m.dropEnd(x.place, x.end) }

// admitEnd judges an end at the home: its token, and that it is the pipe's only receiver. wait: not yet.
func (m *Machine) admitEnd(p *place, e *end, token []byte) (cause Cause, wait bool) {
	h := p.home
	switch {
	case e.verdict != nil:
		return *e.verdict, false
	case p.receiver != nil && p.receiver != e && p.receiver.bound && !p.buffer:
		return because(Busy, "%s has a receiver already; a pipe has one: close that, or use another name", p), false
	case h == nil || h.ended || p.receiver != nil && p.receiver != e && !p.buffer: // who would queue in a home that ends is left in it
		return Cause{}, true
	case !sameToken(h.token, token):
		return because(Denied, "%s: wrong token; open both ends with the same one, or both without", p), false
	case p.buffer:
		e.met = true
	case !e.based:
		p.receiver = e
		m.closeRanks(h)
		e.based, e.met, e.base = true, true, h.pipe.First()
	default:
		p.receiver, e.met = e, true
	}
	return Cause{}, false
}

// closeRanks numbers a pipe's items anew when its last receiver left gaps: what it had got ahead of others that it had not. Nothing moves
// now. The home has another name from then on, so that nobody takes the old numbers for the new.
func (m *Machine) closeRanks(h *home) {
	if h.pipe.Next()-h.pipe.First() == uint64(h.pipe.Len()) {
		return
	}
	h.pipe.Compact(func(it *item, number uint64) { it.number = number })
	h.id = m.drawName()
}

// wakeEarly looks again at those who came too early.
func (m *Machine) wakeEarly(p *place) {
	early := p.early
	p.early = nil
	for _, k := range early {
		if k.queued == queuedEarly && k.state == seekWaiting { // one that is refused may take others with it
			k.queued = notQueued
			m.matchSeeker(k)
		}
	}
}

func comparePlaces(a, b *place) int {
	if a.buffer != b.buffer {
		return map[bool]int{true: 1, false: -1}[a.buffer]
	}
	return cmp.Compare(a.name, b.name)
}

func compareEnds(a, b *end) int { return cmp.Compare(a.bind, b.bind) }

// seekersOf lists gets of other nodes in the order in which they came.
func (m *Machine) seekersOf(is func(*seeker) bool) []*seeker { return sortSeekers(m.seekers, is) }

func sortSeekers[K comparable](from map[K]*seeker, is func(*seeker) bool) []*seeker {
	var out []*seeker
	for _, k := range from {
		if is(k) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b *seeker) int { return cmp.Compare(a.number, b.number) })
	return out
}
