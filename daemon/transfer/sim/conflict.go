package sim

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// An engine that mixes up its blocks takes into blocks that it already offers or takes into, or offers blocks that
// are being written. The daemon has to refuse that.

// What holds the blocks.
const (
	byTake  = "a take"
	byOffer = "an offer"
)

// mistake takes into blocks that are in use, or offers them.
func (q *Request) mistake(e *Engine, p takePlan) {
	switch {
	case !e.ready():
	case p.conflict == byTake && q.c.rng.hit(50):
		q.c.offerTaken(pick(&q.c.rng, e.askers()), q.c.rng.in(1, 4))
	default:
		p.first, p.attempt = 0, 50
		q.take(e, p)
	}
}

// offerTaken offers blocks into which a take of the same session writes.
func (c *Cluster) offerTaken(s *Session, n int) {
	tokens := n * s.eng.shape.blockSize
	lists := s.ranks()[0].inUse(byTake, tokens)
	if lists == nil {
		return
	}
	q := c.newRequest(s.eng, 1, tokens)
	o := c.newOp("offer", s, s.ranks())
	o.req, o.conflict, o.lists = q, true, lists
	o.submit(&transfer.OfferOp{Key: []byte(q.key), Token: q.token, Lease: second, Consumers: 1, Sealed: true, Blocks: o.lists})
}

// holder returns the operation that certainly holds a block: the daemon has it, and no session was told that it
// ended.
func (s *Session) holder(at uint32, what string) *Op {
	o := s.dst[at]
	if what == byOffer {
		o = s.src[at]
	}
	if o == nil || !o.given || len(o.ends) > 0 || !o.sess.open {
		return nil
	}
	if o.kind == "offer" && (o.bare || !slices.Contains(s.mem.places(o.segs[0]), at)) { // the blocks of an extension may not have reached the daemon
		return nil
	}
	return o
}

// inUse finds blocks for so many tokens in one of the groups. At least one of them is held by a take or an offer.
func (s *Session) inUse(what string, tokens int) []layout.BlockList {
	g := pick(&s.eng.c.rng, s.mem.groups())
	n := (tokens + s.mem.shape.size(g) - 1) / s.mem.shape.size(g)
	var ids []uint32
	for id := uint32(0); id < numBlocks && len(ids) < n; id++ {
		if s.holder(place(g, id), what) != nil {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	for id := uint32(0); id < numBlocks && len(ids) < n; id++ {
		if at := place(g, id); s.dst[at] == nil && s.src[at] == nil {
			ids = append(ids, id)
		}
	}
	if len(ids) < n {
		return nil
	}
	return []layout.BlockList{{Group: g, NTokens: uint32(tokens), IDs: ids}}
}

// conflicts says whether the operation must be refused because its blocks are held, and notes by what.
func (o *Op) conflicts() bool {
	for _, w := range o.ranksOf() {
		for _, at := range w.mem.places(o.lists) {
			for _, what := range []string{byTake, byOffer} {
				if w.holder(at, what) != nil && (o.kind == "take" || what == byTake) {
					o.holder = what
					return w.eng.ready() // otherwise it waits, and may be judged when the other one is over
				}
			}
		}
	}
	return false
}

// accepted counts the operations that the daemon has of the session, if this one has to be refused; otherwise 0.
func (o *Op) accepted() int {
	n := o.sess.node
	if !o.conflict || !n.up {
		return 0
	}
	for _, s := range n.m.Snapshot().Sessions {
		if s.Session == o.sess.id {
			return s.Operations
		}
	}
	return 0
}
