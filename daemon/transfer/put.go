package transfer

import (
	"fmt"
	"math"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/match"
)

// item is what was put into a pipe or lookup buffer. It holds its blocks as an offer does, and becomes an offer when a
// take needs one (asOffer).
type item struct {
	member
	home     *home
	id       uint64
	form     Match
	bytes    uint64
	meta     []byte
	key      []byte
	tokens   int
	number   uint64 // in a pipe
	entry    match.Entry[*item]
	seeker   *seeker   // the get that it is reserved for; nil: it is free
	doubt    *seeker   // a get that may have received it long ago, although it is free
	readers  []*seeker // found by key: those who read it, in no order
	replaced bool      // found by key: the key has another item now
	ended    bool
}

const itemPrefix = ReservedPrefix + "item/"

// itemPadding is what an item of the declared capacity may have in addition: each of its five tensors begins at a
// multiple of 64 bytes.
const itemPadding = 5 * 64

func (m *Machine) submitPut(s *session, sub *Submit, in *PutOp) {
	b, cause := bindOf(s, in.Target)
	if cause.Reason == OK {
		cause = m.mayPut(s, b, in)
	}
	if cause.Reason != OK {
		m.refuse(s, sub, cause)
		return
	}
	it := &item{home: b.home, id: m.drawName(), form: in.Form, bytes: in.Bytes, meta: in.Meta, key: in.Key, tokens: len(in.Tokens)}
	it.ranks, it.sealed, it.late, it.counts = s.self[:1:1], true, true, quotaItems
	it.segs1[0] = portion{blocks: in.Blocks, tokens: ends(in.Blocks)}
	it.segs = it.segs1[:1]
	if len(in.Blocks) > 0 {
		cause = m.acquire(&it.op, it.ranks, in.Blocks)
	}
	if cause.Reason == OK {
		cause = m.begin(&it.op, sub, s, nil, 0, it)
	}
	if cause.Reason != OK {
		m.refuse(s, sub, cause)
		return
	}
	b.tokens += it.tokens
	m.publish(it, in.Tokens)
}

// mayPut judges a put before anything is held for it.
func (m *Machine) mayPut(s *session, b *bind, in *PutOp) Cause {
	h := b.home
	switch {
	case h == nil:
		return because(Invalid, "%s: this is a receiving end; only its sender puts", b.name)
	case h.broken != nil:
		return *h.broken
	case h.sealed:
		return because(Closed, "%s is sealed; nothing can be put any more", b.name)
	case (in.Form == MatchNext) == h.place.buffer || in.Form < MatchNext || in.Form > MatchKey || in.Form == MatchExact:
		return because(Invalid, "%s: form is %d: must be 1 (next) for a pipe; 2 (any), 3 (prefix) or 5 (key) for a buffer", b.name, in.Form)
	case in.Bytes > h.capacity+itemPadding:
		return because(Invalid, "%s: an item of %d bytes does not fit into its capacity of %d; open it with more", b.name, in.Bytes, h.capacity)
	case b.tokens+len(in.Tokens) > MaxHeldTokens:
		return because(Quota, "%s: its items lie under %d tokens, with these %d; the limit is %d: wait until some are selected", b.name, b.tokens, len(in.Tokens), MaxHeldTokens)
	}
	if passed := h.pipe.Passed(); passed >= uint64(m.cfg.MaxItems) {
		return because(Quota, "%s: its receiver has received %d items behind one that it has left, the limit is limits.items = %d: have it receive that one, or raise that",
			b.name, passed, m.cfg.MaxItems)
	}
	return m.coversBytes(s, in.Blocks, in.Bytes)
}

// coversBytes checks that the blocks of an arena hold exactly that many bytes.
func (m *Machine) coversBytes(s *session, lists []layout.BlockList, bytes uint64) Cause {
	switch {
	case bytes == 0 && len(lists) == 0:
		return Cause{}
	case s.layout == nil:
		return because(Invalid, "the session has no layout: set the arena's before the first operation with blocks")
	case bytes > math.MaxUint32:
		return because(Invalid, "an item of %d bytes; the limit is %d: split it", bytes, uint32(math.MaxUint32))
	case len(lists) != 1 || lists[0].FirstToken != 0 || uint64(lists[0].NTokens) != bytes || bytes == 0:
		return because(Invalid, "blocks: one list must cover the %d bytes from 0", bytes)
	}
	if cause := m.regionsThere(s); cause.Reason != OK {
		return cause
	}
	if cause := m.checkBlocks(s.self[:], lists); cause.Reason != OK {
		return cause
	}
	if g := s.layout.Group(lists[0].Group); g.Kind != layout.Paged { // its blocks have no tokens, and here a token is a byte
		return because(Invalid, "blocks: group %d of the session's layout has kind %d (opaque); items lie in paged groups (%d) alone: declare the arena as one",
			lists[0].Group, g.Kind, layout.Paged)
	}
	return Cause{}
}

// publish gives an item to a seeker that waits for it, or lets it wait.
func (m *Machine) publish(it *item, tokens []uint32) {
	h := it.home
	h.items++
	h.bytes += it.bytes
	switch it.form {
	case MatchNext:
		it.number = h.pipe.Put(it)
	case MatchKey:
		old := h.keys[string(it.key)]
		h.keys[string(it.key)] = it
		if old != nil {
			old.replaced = true
			m.unread(old)
		}
	default:
		it.entry = h.lookup.Insert(it, tokens)
	}
	m.offerItem(it)
}

// offerItem matches a free item with those who wait.
func (m *Machine) offerItem(it *item) {
	h := it.home
	switch it.form {
	case MatchNext:
		if list := h.waiting[it.number]; len(list) > 0 {
			k := list[0]
			m.unqueue(k)
			m.found(k, it)
		}
	case MatchKey:
		waiting := h.keyWait[string(it.key)]
		delete(h.keyWait, string(it.key)) // all at once: removing them one by one would look through the list for each
		for _, k := range waiting {
			if k.queued == queuedKey {
				m.unqueue(k)
				m.found(k, it)
			}
		}
	default:
		if q, ok := h.lookup.Waiting(it.entry); ok {
			k := q.Value()
			m.unqueue(k)
			m.found(k, it)
		}
	}
}

// reserve keeps an item for the seeker that found it.
func (it *item) reserve(k *seeker) {
	k.item = it
	switch it.form {
	case MatchKey:
		it.read(k)
		return
	case MatchNext:
		it.home.pipe.Take(it.number)
	default:
		it.home.lookup.Take(it.entry)
	}
	it.seeker = k
}

// giveBack returns an item to its place when the seeker that found it did not get it after all.
func (m *Machine) giveBack(it *item, k *seeker) {
	k.item = nil
	switch {
	case it.form == MatchKey:
		it.leave(k)
		m.unread(it)
	case it.doubt == k:
		it.doubt = nil
	case !it.ended && it.seeker == k:
		m.setFree(it)
	}
}

// setFree returns an item that was reserved to its place.
func (m *Machine) setFree(it *item) {
	switch {
	case m.cfg.Broken.Return:
		return
	case it.form == MatchNext:
		it.home.pipe.Return(it.number)
	default:
		it.home.lookup.Return(it.entry)
	}
	it.seeker = nil
	m.offerItem(it)
}

// unread ends an item that was replaced under its key once nobody reads it.
func (m *Machine) unread(it *item) {
	if it.replaced && len(it.readers) == 0 {
		m.endItem(it, Done, Cause{})
	}
}

// consumed notes that a take of the item was committed.
func (m *Machine) consumed(it *item) {
	it.home.delivered++
	if it.form != MatchKey {
		m.endItem(it, Done, Cause{})
	}
}

// endItem takes an item out of its home and ends its operation.
func (m *Machine) endItem(it *item, status Status, cause Cause) {
	if it.ended {
		return
	}
	it.ended = true
	h := it.home
	h.items--
	h.bytes -= it.bytes
	if it.offer != nil {
		h.legs -= it.offer.open
	}
	h.bind.tokens -= it.tokens
	switch it.form {
	case MatchNext:
		h.pipe.Remove(it.number)
	case MatchKey:
		if h.keys[string(it.key)] == it {
			delete(h.keys, string(it.key))
		}
	default:
		h.lookup.Remove(it.entry)
	}
	for _, k := range append(it.readers, it.seeker, it.doubt) {
		if k == nil || k.item != it {
			continue
		}
		if k.item = nil; k.state == seekShort || k == it.doubt {
			m.dropSeeker(k)
		}
	}
	it.seeker, it.doubt, it.readers = nil, nil, nil
	if it.offer != nil {
		how := consumed
		if status != Done { // whoever is receiving it hears why
			how = "withdrawn"
		}
		it.offer.end(m, status, cause, how)
	} else {
		m.conclude(&it.op, status, cause)
	}
	m.drainedHome(h)
}

// asOffer makes the item an offer, so that takes find it.
func (m *Machine) asOffer(it *item) *offer {
	if it.offer != nil {
		return it.offer
	}
	s := it.by
	in := &OfferOp{Key: fmt.Appendf(nil, "%s%016x", itemPrefix, it.id), Token: m.token(), Consumers: 1}
	if it.form == MatchKey {
		in.Consumers = math.MaxInt
	}
	o := m.newOffer(s, in)
	o.item = it
	it.offer = o
	o.members = append(o.members, &it.member)
	o.ranks, o.joined = it.ranks, true
	o.layouts = rankLayouts(o.ranks)
	return o
}

// token draws the token that a take of an item has to show.
func (m *Machine) token() []byte {
	t := make([]byte, 0, 16)
	for range 2 {
		r := m.cfg.Random()
		for i := range 8 {
			t = append(t, byte(r>>(8*i)))
		}
	}
	return t
}

func (it *item) cancel(m *Machine, _ *op) {
	m.endItem(it, WasCancelled, because(Cancelled, "withdrawn by its owner"))
}

func (it *item) lost(m *Machine, _ *op, s *session, cause Cause) {
	if s.lingers != it.home {
		m.endItem(it, Failed, cause)
	}
}

func (it *item) busy() bool { return it.offer != nil && it.offer.open > 0 }

func (it *item) account(o *op, _ *session) (uint64, []layout.Run) {
	if o.status == Done {
		return it.bytes, nil
	}
	return 0, nil
}

func (it *item) freed(*Machine, *op) {}
