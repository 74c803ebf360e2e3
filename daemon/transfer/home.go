package transfer

import (
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/match"
)

// home is a pipe or lookup buffer at the node of its sender or owner: the items, and who waits for them.
type home struct {
	id        uint64
	place     *place
	bind      *bind
	token     []byte
	capacity  uint64
	sealed    bool
	broken    *Cause // why an item of it was refused
	ended     bool
	linger    Time
	met       bool   // a pipe's: a receiver has come
	gone      *Cause // why its session is over
	over      timer  // ends its linger; armed once gone is set
	items     int
	bytes     uint64 // of the items
	legs      int    // that may read the items
	delivered uint64

	pipe    match.Pipe[*item]
	waiting map[uint64][]*seeker // by item number
	lookup  match.Lookup[*item, *seeker]
	keys    map[string]*item
	keyWait map[string][]*seeker
}

// openHome makes the session's bind the home of its name.
func (m *Machine) openHome(b *bind, in *BindOp) {
	h := &home{
		id: m.drawName(), place: b.place, bind: b, token: in.Token, capacity: in.Capacity, linger: m.clampLinger(in.Linger),
	}
	if b.place.buffer {
		h.keys, h.keyWait = map[string]*item{}, map[string][]*seeker{}
	} else {
		h.waiting = map[uint64][]*seeker{}
	}
	m.forgetWord(b.place)
	b.home, b.place.home = h, h
	m.wakeEarly(b.place)
}

// drawName returns a number that no earlier daemon of this node used.
func (m *Machine) drawName() uint64 { m.lastOffr++; return m.lastOffr }

// sealHome notes that nothing more is put, and tells those who wait for more.
func (m *Machine) sealHome(s *session, sub *Submit, b *bind) {
	h := b.home
	if h == nil {
		m.refuse(s, sub, because(Invalid, "%s: this is a receiving end; its sender seals it", b.name))
		return
	}
	if h.broken != nil {
		m.refuse(s, sub, *h.broken)
		return
	}
	m.answer(s, sub)
	if h.sealed {
		return
	}
	h.sealed = true
	m.rematch(h)
	m.drainedHome(h)
}

// waiters lists the seekers that wait for items, oldest first.
func (h *home) waiters() []*seeker {
	var out []*seeker
	for _, list := range h.waiting {
		out = append(out, list...)
	}
	for _, list := range h.keyWait {
		out = append(out, list...)
	}
	out = append(out, h.lookup.Waiters()...)
	slices.SortFunc(out, func(a, b *seeker) int { return cmp.Compare(a.number, b.number) })
	return out
}

// drainedHome ends a home that has no items and to which none will come.
func (m *Machine) drainedHome(h *home) {
	if h.items > 0 || h.ended {
		return // the usual case; the farewell's words cost more than all else that ends an item
	}
	if verdict := h.farewell(); verdict.Reason != OK {
		m.endHome(h, Done, Cause{}, verdict)
	}
}

func (m *Machine) clampLinger(d Time) Time {
	if d <= 0 {
		d = m.cfg.PipeLinger
	}
	return min(d, m.cfg.MaxLease)
}

// endHome ends a home, with the items in it. verdict is what its receiving ends hear.
func (m *Machine) endHome(h *home, status Status, cause, verdict Cause) {
	if h.ended {
		return
	}
	m.leaveWord(h, verdict)
	h.ended = true
	p := h.place
	for _, e := range p.ends {
		if e.met && e.verdict == nil { // else it has met an earlier home
			e.verdict = &verdict
		}
	}
	waiters := h.waiters()
	for _, k := range waiters {
		m.unqueue(k)
	}
	for _, it := range h.all() {
		m.endItem(it, status, cause)
	}
	p.home = nil
	for _, k := range waiters {
		if k.state != seekWaiting {
			continue
		}
		m.refuseSeeker(k, verdict)
	}
	m.disarm(&h.over)
	s := h.bind.by
	m.conclude(&h.bind.op, status, cause)
	m.tidyPlace(p)
	if s.lingers == h {
		s.lingers = nil
		m.lingering.add(s.testator(), -1)
		m.drained(s)
	}
}

// all lists the items in the order in which they came. It looks through the operations of the home's session, nearly
// all of which are items.
func (h *home) all() []*item {
	out := make([]numbered[*item], 0, h.items)
	for _, o := range h.bind.by.ops {
		if it, ok := o.owner.(*item); ok && it.home == h && !it.ended {
			out = append(out, numbered[*item]{it.id, it})
		}
	}
	return inOrder(out)
}
