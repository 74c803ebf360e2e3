package transfer

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/match"
)

// seeker is a GET at its home: what it looks for, and the item that is reserved for it.
//
//	waiting --an item--> found --the take commits--> over
//	                       |  (the take fails, or never comes): the item goes back
//	                       +--no room--> short --ITEM, DECLINE, time--> over
type seeker struct {
	id     Leg // the leg that the take's producer end will have
	number uint64
	take   *take // if it is on this node
	peer   *peer // if it is on another one
	place  *place
	end    *end

	match    Match
	seq      uint64 // item number; one of the home's once absolute is set
	absolute bool
	key      []byte
	tokens   []uint32
	token    []byte
	room     uint64
	keep     Time   // how long a reservation lasts
	ticket   uint64 // what ITEM and DECLINE call it; not the item's id, since another get of the end may have that item by then

	held     int      // what counts in peer.held, if it is another node's
	brought  *MsgTake // the take that MsgSeek brought, to begin with what is found
	state    seekState
	item     *item
	reads    int // its place among the item's readers
	short    int // its place among the end's shorts
	matched  uint64
	queued   queued
	query    match.Query[*seeker]
	deadline timer
	until    Time
}

type seekState uint8

const (
	seekWaiting seekState = iota
	seekFound
	seekShort
	seekDoubt // everything was sent, and the receiver's word is still out
	seekOver
)

// queued says in which list a seeker waits.
type queued uint8

const (
	notQueued queued = iota
	queuedEarly
	queuedNumber
	queuedKey
	queuedQuery
)

// beginSeek lets a GET look for its item.
func (m *Machine) beginSeek(k *seeker, name placeName, id endID) {
	m.lastSeek++
	k.number = m.lastSeek
	k.place = m.place(name)
	k.end = m.enter(k.place, id)
	k.end.seekers++
	k.end.bound = true // again, if its channel was lost meanwhile
	m.matchSeeker(k)
}

// matchSeeker finds an item now, lets the seeker wait for one, or refuses it.
func (m *Machine) matchSeeker(k *seeker) {
	p := k.place
	cause, wait := m.admitEnd(p, k.end, k.token)
	switch {
	case cause.Reason != OK:
		m.refuseSeeker(k, cause)
		return
	case k.match == MatchItem || k.match == MatchDecline:
		m.seekReserved(k)
		return
	case wait:
		k.queued = queuedEarly
		p.early = append(p.early, k)
		if p.receiver != nil {
			m.yieldDoubts(p)
		}
		return
	}
	if cause := m.mayBeShort(p, k.end); cause.Reason != OK && k.match != MatchNext {
		m.refuseSeeker(k, cause)
		return
	}
	h := p.home
	switch k.match {
	case MatchNext:
		if !k.absolute {
			k.seq, k.absolute = k.seq+k.end.base, true
		}
		m.seekNumber(h, k)
	case MatchKey:
		if it := h.keys[string(k.key)]; it != nil {
			m.found(k, it)
			return
		}
		k.queued = queuedKey
		h.keyWait[string(k.key)] = append(h.keyWait[string(k.key)], k)
	default:
		mode := modes[k.match]
		if e, ok := h.lookup.Find(mode, k.tokens); ok {
			m.found(k, e.Value())
			return
		}
		k.queued = queuedQuery
		k.query = h.lookup.Wait(k, mode, k.tokens)
	}
}

var modes = [...]match.Mode{MatchAny: match.Any, MatchPrefix: match.Prefix, MatchExact: match.Exact}

// seekNumber looks for a pipe's item.
func (m *Machine) seekNumber(h *home, k *seeker) {
	it, state := h.pipe.Get(k.seq)
	switch {
	case state == match.Gone:
		m.refuseSeeker(k, because(Invalid, "%s: item %d is not there any more: it was received before, or withdrawn by its sender", h.place, k.seq-k.end.base))
	case state == match.Ready:
		if cause := m.mayBeShort(h.place, k.end); cause.Reason != OK {
			m.refuseSeeker(k, cause)
			return
		}
		m.found(k, it)
	case state == match.Taken && it.seeker.state == seekShort && it.seeker.end == k.end:
		m.takeOver(k, it.seeker)
	case state == match.Ahead && h.final():
		m.refuseSeeker(k, h.noMore(k.end))
	default:
		k.queued = queuedNumber
		h.waiting[k.seq] = append(h.waiting[k.seq], k)
	}
}

// seekReserved finds what an earlier GET of the same end had no room for, to take it or to give it back.
func (m *Machine) seekReserved(k *seeker) {
	i := slices.IndexFunc(k.end.shorts, func(old *seeker) bool { return old.ticket == k.seq })
	if i < 0 {
		m.refuseSeeker(k, because(NotFound, "%s: %#x is not reserved for this end (any more); get it anew", k.place, k.seq))
		return
	}
	old := k.end.shorts[i]
	if k.match == MatchItem {
		m.takeOver(k, old)
		return
	}
	m.unseek(old)
	k.state = seekFound
	if k.take != nil {
		m.dropSeeker(k)
		k.take.found(m, &finding{}, nil)
		return
	}
	m.send(k.peer, &MsgFound{Xfer: k.id.Xfer})
	m.dropSeeker(k)
}

// takeOver gives one seeker what is reserved for another seeker of the same end.
func (m *Machine) takeOver(k, old *seeker) {
	it := old.item
	k.item, k.matched, k.ticket = it, old.matched, old.ticket
	if old.item = nil; it.form == MatchKey {
		it.leave(old)
		it.read(k)
	} else {
		it.seeker = k
	}
	m.dropSeeker(old)
	m.hand(k)
}

// found reserves an item for the seeker that looked for it, and says so.
func (m *Machine) found(k *seeker, it *item) {
	switch k.match {
	case MatchAny:
		k.matched = uint64(it.tokens)
	case MatchPrefix, MatchExact:
		k.matched = uint64(min(len(k.tokens), it.tokens))
	}
	m.undoubt(it)
	it.reserve(k)
	m.hand(k)
}

// hand tells the GET what was found for it.
func (m *Machine) hand(k *seeker) {
	it := k.item
	k.state = seekFound
	if it.bytes > k.room {
		k.state = seekShort
		if k.ticket == 0 {
			k.ticket = m.drawName()
		}
		k.end.addShort(k)
		m.arm(&k.deadline, k, wakeDeadline, m.now+k.keep)
	}
	if k.take != nil {
		f := k.finding()
		k.take.found(m, &f, it)
		return
	}
	if k.state == seekFound {
		m.arm(&k.deadline, k, wakeDeadline, k.takeBy(m))
	}
	m.takeFound(k)
}

// takeBy is the time by which another node has to take an item that was found for it.
func (k *seeker) takeBy(m *Machine) Time { return max(k.until, m.now) + 2*m.cfg.Resend }

// called is the number by which the answer names what was found.
func (k *seeker) called() uint64 {
	if k.state == seekShort {
		return k.ticket
	}
	return k.item.id
}

func (k *seeker) finding() finding {
	it := k.item
	return finding{Item: k.called(), Bytes: it.bytes, Capacity: it.home.capacity, Matched: k.matched, Meta: it.meta}
}

// fire ends a reservation, or a search that found nothing in time; for an item in doubt, it asks again or gives up.
func (k *seeker) fire(m *Machine, _ wake) {
	if k.state == seekDoubt {
		if m.now < k.until {
			m.askDoubt(k)
		} else {
			m.doubtOver(k)
		}
		return
	}
	if k.state == seekWaiting {
		m.refuseSeeker(k, because(Timeout, "%s on node %q: %s in time", k.place, m.cfg.Node, waitTexts[m.whyWaiting(k)]))
		return
	}
	if k.peer != nil {
		m.abandonSeek(k)
		return
	}
	m.unseek(k)
}

// unqueue takes a seeker off the list in which it waits.
func (m *Machine) unqueue(k *seeker) {
	h := k.place.home
	switch k.queued {
	case queuedEarly:
		k.place.early = without(k.place.early, k)
	case queuedNumber:
		unlist(h.waiting, k.seq, k)
	case queuedKey:
		unlist(h.keyWait, string(k.key), k)
	case queuedQuery:
		h.lookup.Leave(k.query)
	}
	k.queued = notQueued
}

// unlist takes one element out of the list under a key, and removes the key with the last.
func unlist[K, T comparable](lists map[K][]T, key K, one T) {
	list := without(lists[key], one)
	if len(list) == 0 {
		delete(lists, key)
	} else {
		lists[key] = list
	}
}

// without takes one element out of a list. Mostly it is the first: those who came first are served, and end, first.
func without[T comparable](list []T, one T) []T {
	switch i := slices.Index(list, one); i {
	case -1:
		return list
	case 0:
		clear(list[:1])
		return list[1:]
	default:
		return slices.Delete(list, i, i+1)
	}
}

// unseek ends a seeker that did not get its item. The item goes back.
func (m *Machine) unseek(k *seeker) {
	m.unqueue(k)
	it := k.item
	m.dropSeeker(k)
	if it != nil {
		m.giveBack(it, k)
	}
}

// dropSeeker forgets a seeker that waits no more.
func (m *Machine) dropSeeker(k *seeker) {
	if k.state == seekOver {
		return
	}
	doubtful := k.state == seekDoubt
	k.state = seekOver
	m.disarm(&k.deadline)
	k.end.dropShort(k)
	if k.peer != nil {
		m.forgetSeek(k, doubtful)
	}
	if k.end.seekers--; !k.end.bound {
		m.dropEnd(k.place, k.end)
	}
	m.tidyPlace(k.place)
}

// refuseSeeker ends a GET that cannot be served.
func (m *Machine) refuseSeeker(k *seeker, cause Cause) {
	m.unqueue(k)
	t, p := k.take, k.peer
	m.dropSeeker(k)
	if t == nil {
		m.send(p, &MsgSeekRefuse{Xfer: k.id.Xfer, Cause: cause})
		return
	}
	t.refusedSeek(m, cause)
}

// refusedSeek ends a GET as its home said. Some causes are about the whole end, and end that, too.
func (t *take) refusedSeek(m *Machine, cause Cause) {
	t.asked = false
	t.fail(m, Failed, cause)
	if cause.Reason == Busy || cause.Reason == Denied {
		t.get.end.over(m, Failed, cause)
	}
}

// whyWaiting says what a seeker waits for.
func (m *Machine) whyWaiting(k *seeker) uint8 {
	h := k.place.home
	switch {
	case h == nil:
		return waitsForHome
	case k.queued == queuedEarly:
		return waitsForOther
	case k.queued == queuedNumber:
		if _, state := h.pipe.Get(k.seq); state == match.Taken {
			return waitsForOther
		}
		return waitsForItem
	case h.items == 0:
		return waitsForItem
	}
	return waitsForMatch
}
