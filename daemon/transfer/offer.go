package transfer

import (
	"bytes"
	"cmp"
	"crypto/subtle"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// offer is what lies under a key: one operation of a scheduler for all its ranks, or one operation of each worker.
type offer struct {
	key            string
	token, content []byte
	trace          string
	engine         *engine
	incarnation    uint64 // of this offer, in grants and in MsgSent
	members        []*member
	ranks          []*session // ascending rank
	layouts        []RankLayout
	joined         bool             // all of the engine's ranks here are in it
	cuts           map[uint32][]cut // by group, ascending; of offers that each rank makes for itself
	consumers      int
	claims         []*claim
	astray         bool     // a transfer under way may be of none of the claims
	serves         []*serve // transfers that were admitted and are not fenced yet
	open           int      // of them, those whose leg is busy
	lease          Time
	expires        Time
	expiry         timer
	bytes          uint64 // moved to takes that are done
	ended          bool
	orphaned       bool       // a session concerned died
	outlives       Time       // orphaned: when it ends at the latest
	dead           []*session // those of its ranks that it outlives
	item           *item      // the item that it stands for, if any; then it never expires

	// Room for what most offers have: one of each.
	members1 [1]*member
	serves1  [1]*serve
	claims1  [1]*claim
	claim0   claim
}

// member is one client operation of an offer.
type member struct {
	op
	offer  *offer
	ranks  []*session
	segs   []portion
	segs1  [1]portion
	ends   map[uint32]uint32 // group -> token after the last one offered; an opaque group is in it once it has blocks
	sealed bool
	left   int // what counts of it among estates
}

// portion is what one offer or extend operation added.
type portion struct {
	blocks  []layout.BlockList
	after   uint64
	layered bool
	tokens  uint32 // how far the offer reaches with this portion
}

func (m *Machine) submitOffer(s *session, sub *Submit, in *OfferOp) {
	ranks, cause := m.ranks(s)
	if cause.Reason == OK {
		cause = m.checkBlocks(ranks, in.Blocks)
	}
	if cause.Reason == OK {
		cause = m.within(s, quotaOffers, 1)
	}
	o := m.offers[string(in.Key)]
	old := o.heirless(s)
	if old != nil {
		o = nil
	}
	if cause.Reason == OK && o != nil {
		cause = o.joinable(s, in)
		if m.cfg.Broken.Stranger && (cause.Reason == Denied || cause.Reason == Incompatible) {
			cause = Cause{}
		}
	}
	if cause.Reason == OK && o != nil {
		cause = o.carries(0, in.Blocks)
	}
	if cause.Reason == OK && o != nil && !m.cfg.Broken.Step {
		cause = o.inStep(ranks, 0, in.Blocks)
	}
	if cause.Reason != OK {
		m.refuse(s, sub, cause)
		return
	}
	mb := &member{ranks: ranks, sealed: in.Sealed}
	if cause = m.acquire(&mb.op, ranks, in.Blocks); cause.Reason == OK {
		if cause = m.begin(&mb.op, sub, s, ranks, creditsMemory, mb); cause.Reason != OK {
			mb.letGo()
		}
	}
	if cause.Reason != OK {
		m.refuse(s, sub, cause)
		return
	}
	if o == nil {
		o = m.newOffer(s, in)
	}
	o.join(m, mb)
	s.used[quotaOffers]++
	m.traceOp(&mb.op, in.Key, in.Trace, "", 0)
	if len(in.Blocks) > 0 || in.Sealed {
		mb.add(in.Blocks, in.After, in.Layered)
	}
	o.expireBy(m, m.now+m.clampLease(in.Lease))
	m.tellCut(s, in.Lease)
	m.applyDrops(o)
	o.grown(m)
	if old != nil {
		old.end(m, Failed, because(Expired, "key %s: engine %q died and its next instance made another offer under the key", short(old.key), old.engine.key.name), "was replaced")
	}
}

func (m *Machine) clampLease(lease Time) Time {
	if lease <= 0 {
		lease = m.cfg.DefaultLease
	}
	return min(lease, m.cfg.MaxLease)
}

// tellCut logs, once for each session, that a lease is shorter than was asked for.
func (m *Machine) tellCut(s *session, asked Time) {
	if asked <= m.cfg.MaxLease || s.cut {
		return
	}
	s.cut = true
	m.emit(Log{Level: warnLevel, Often: true, Text: "a lease was cut to offers.max_lease, and so are all longer ones of this session", Attrs: []any{
		"engine", s.engine.key.name, "instance", s.engine.instance, "rank", rankName(s), "asked", duration(asked), "granted", duration(m.cfg.MaxLease)}})
}

func (m *Machine) newOffer(s *session, in *OfferOp) *offer {
	m.lastOffr++
	o := &offer{
		key: string(in.Key), token: in.Token, content: in.Content, trace: in.Trace, engine: s.engine,
		incarnation: m.lastOffr, consumers: max(in.Consumers, 1), lease: m.clampLease(in.Lease),
	}
	o.members, o.serves, o.claims = o.members1[:0], o.serves1[:0], o.claims1[:0]
	m.offers[o.key] = o
	return o
}

// joinable says whether another worker's operation may add its rank.
func (o *offer) joinable(s *session, in *OfferOp) Cause {
	key := short(o.key)
	switch {
	case len(o.ranks) >= MaxRanks:
		return because(Quota, "key %s: %d ranks offer under it, the limit is %d: offer the others' blocks under another key", key, len(o.ranks), MaxRanks)
	case s.role != Worker || o.members[0].by.role != Worker || s.engine != o.engine:
		return because(Busy, "key %s is in use by an offer of engine %q; withdraw that first, or use another key", key, o.engine.key.name)
	case slices.Contains(o.ranks, s):
		return because(Busy, "key %s: rank %d has an offer under it already; withdraw that first", key, s.rank)
	case !sameToken(o.token, in.Token):
		return because(Denied, "key %s: the token differs from that of the other ranks of engine %q; give all of them the same one", key, o.engine.key.name)
	case !bytes.Equal(o.content, in.Content):
		return because(Incompatible, "key %s: the content digest is %s here and %s in the other ranks' offers; give all of them the same one",
			key, digest(in.Content), digest(o.content))
	case o.joined:
		return because(Busy, "key %s: all ranks that engine %q had were in the offer before rank %d came; withdraw it first", key, o.engine.key.name, s.rank)
	}
	return Cause{}
}

// carries says whether the blocks fit into the piece of the offer with that number. A grant of a piece names the blocks
// of all ranks that offer for themselves, so those count together.
func (o *offer) carries(seg int, blocks []layout.BlockList) Cause {
	n := layout.CountIDs(blocks)
	for _, mb := range o.members {
		if seg < len(mb.segs) {
			n += layout.CountIDs(mb.segs[seg].blocks)
		}
	}
	if n > layout.MaxIDs {
		return because(Quota, "key %s: piece %d has %d block ids of all its ranks, the limit is %d: offer the first part unsealed, and extend it by the rest",
			short(o.key), seg, n, layout.MaxIDs)
	}
	return Cause{}
}

// sameToken takes the same time whatever the tokens are.
func sameToken(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }

// join adds a client operation and the ranks that it is about.
func (o *offer) join(m *Machine, mb *member) {
	mb.offer = o
	o.members = append(o.members, mb)
	if o.ranks == nil {
		o.ranks = mb.ranks
	} else {
		o.ranks = slices.Concat(o.ranks, mb.ranks)
		slices.SortFunc(o.ranks, func(a, b *session) int { return cmp.Compare(a.rank, b.rank) })
	}
	o.layouts = rankLayouts(o.ranks)
	o.joined = mb.by.role == Scheduler
	if !o.joined {
		o.joined = len(o.ranks) >= o.expected(m)
	}
}

// expected is how many ranks of the engine an offer of its workers waits for: those that are here, those that will be
// back soon, and those that have left.
func (o *offer) expected(m *Machine) int {
	n := m.home.ranksOut(o.engine) + len(o.engine.absent())
	if m.cfg.Broken.Joined {
		n = 0
	}
	for _, w := range o.engine.workers {
		if w.ended == nil {
			n++
		}
	}
	return n
}

func rankLayouts(ranks []*session) []RankLayout {
	if len(ranks) == 1 {
		return ranks[0].asRank[:]
	}
	out := make([]RankLayout, len(ranks))
	for i, s := range ranks {
		out[i] = RankLayout{Rank: s.rank, Session: s.id, Layout: s.layout}
	}
	return out
}

// add appends a segment.
func (mb *member) add(blocks []layout.BlockList, after uint64, layered bool) {
	if mb.segs == nil {
		mb.segs = mb.segs1[:0]
	}
	tokens := ends(blocks)
	if n := len(mb.segs); n > 0 {
		tokens = max(tokens, mb.segs[n-1].tokens)
	}
	mb.offer.cut(mb, len(mb.segs), blocks)
	mb.segs = append(mb.segs, portion{blocks, after, layered, tokens})
	if mb.ends == nil && !mb.sealed {
		mb.ends = map[uint32]uint32{}
	}
	for _, b := range blocks {
		if mb.ends != nil && (len(b.IDs) > 0 || !mb.opaque(b.Group)) {
			mb.ends[b.Group] = b.FirstToken + b.NTokens
		}
	}
}

// segments counts those that every member has added.
func (o *offer) segments() int {
	n := len(o.members[0].segs)
	for _, mb := range o.members[1:] {
		n = min(n, len(mb.segs))
	}
	return n
}

func (o *offer) sealed() bool {
	for _, mb := range o.members {
		if !mb.sealed {
			return false
		}
	}
	return o.joined
}

// source is the blocks of a segment: one list for all ranks, or one for each.
func (o *offer) source(seg int) (all []layout.BlockList, by map[uint32][]layout.BlockList) {
	if len(o.members) == 1 {
		return o.members[0].segs[seg].blocks, nil
	}
	by = make(map[uint32][]layout.BlockList, len(o.members))
	for _, mb := range o.members {
		by[mb.ranks[0].rank] = mb.segs[seg].blocks
	}
	return nil, by
}

// portionOf returns what the member of a rank added as that segment.
func (o *offer) portionOf(s *session, seg int) *portion {
	for _, mb := range o.members {
		if slices.Contains(mb.ranks, s) {
			return &mb.segs[seg]
		}
	}
	return &o.members[0].segs[seg]
}

func (o *offer) layered(seg int) bool {
	for _, mb := range o.members {
		if mb.segs[seg].layered {
			return true
		}
	}
	return false
}

// whole is true when all ranks of the engine are here, so that no part of a take can be missing.
func (o *offer) whole() bool { return len(o.ranks) >= int(o.engine.world) }

// tokens is how far the offer reaches, including that segment.
func (o *offer) tokens(seg int) uint32 { return o.members[0].segs[seg].tokens }

// ends is the token after the last one of some lists.
func ends(lists []layout.BlockList) (token uint32) {
	for _, b := range lists {
		token = max(token, b.FirstToken+b.NTokens)
	}
	return token
}
