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

// place is a name on its home's node: who holds it, and who comes there for items. It exists while there is a home, an
// end, an early seeker, or something to be heard.
type place struct {
	placeName
	home     *home
	unheard  *unheard // the last home's end; nil: there is a home, or nobody has to hear it
	ends     map[endID]*end
	receiver *end      // a pipe's only one
	early    []*seeker // seekers that came before the home, or before the last receiver's items were settled; in order of coming
}

// endID names a receiving end: its node, and a number that the node draws.
type endID struct {
	node string // "": this one
	bind uint64
}

// end is a receiving end, as its home's node knows it.
type end struct {
	endID
	based   bool   // base is known
	base    uint64 // number of the item that is item 0 of this end
	met     bool   // it has met a home
	verdict *Cause // why that home is gone
	seekers int
	shorts  []*seeker // those with a reserved item for which they had no room
	bound   bool      // its bind lives, as far as is known here
	closed  bool      // it said that it is closed: what comes late from it changes nothing
	forget  timer     // runs while closed
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
	if p.home == nil && len(p.ends) == 0 && len(p.early) == 0 && p.unheard == nil {
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

// leave ends an end, with what it waits for and what is reserved for it.
func (m *Machine) leave(p *place, e *end) {
	e.bound = false
	if e.seekers > 0 { // the search is long, and few of the ends that a peer has, or says it has, have any
		for _, k := range m.seekersOf(func(k *seeker) bool { return k.place == p && k.end == e }) {
			m.abandonSeek(k)
		}
	}
	m.giveShortsBack(e) // seekersOf does not list those of this node's ends
	m.dropEnd(p, e)
}

// dropEnd forgets a closed end once nothing of it moves. It may have been forgotten already, when the last of its gets ended.
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

// admitEnd judges an end at the home: its token, and that it is the pipe's only receiver. wait: it cannot be admitted yet.
func (m *Machine) admitEnd(p *place, e *end, token []byte) (cause Cause, wait bool) {
	h := p.home
	switch {
	case e.verdict != nil:
		return *e.verdict, false
	case p.receiver != nil && p.receiver != e && p.receiver.bound:
		return because(Busy, "%s has a receiver already; a pipe has one: close that, or use another name", p), false
	case p.unheard != nil && sameToken(p.unheard.token, token): // with another one it is no receiver of that sender's
		e.met, e.verdict = true, &p.unheard.cause
		m.forgetWord(p)
		return *e.verdict, false
	case h == nil || h.ended || p.receiver != nil && p.receiver != e: // a seeker that queued in a home which ends would be left in it
		return Cause{}, true
	case !sameToken(h.token, token) && !m.cfg.Broken.Stranger:
		return because(Denied, "%s: wrong token; open both ends with the same one, or both without", p), false
	case p.buffer:
		e.met = true
	case !e.based:
		p.receiver = e
		m.closeRanks(h)
		e.based, e.met, e.base, h.met = true, true, h.pipe.First(), true
	default:
		p.receiver, e.met, h.met = e, true, true
	}
	return Cause{}, false
}

// closeRanks numbers a pipe's items anew if its last receiver left gaps because it had received some items ahead of others.
// Nothing moves at this time. From then on the home has another name, so that nobody takes the old numbers for the new.
func (m *Machine) closeRanks(h *home) {
	if h.pipe.Next()-h.pipe.First() == uint64(h.pipe.Len()) {
		return
	}
	h.pipe.Compact(func(it *item, number uint64) { it.number = number })
	h.id = m.drawName()
}

// wakeEarly looks again at the seekers that came too early.
func (m *Machine) wakeEarly(p *place) {
	early := p.early
	p.early = nil
	for _, k := range early {
		if k.queued == queuedEarly && k.state == seekWaiting { // the refusal of one may have ended others
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
