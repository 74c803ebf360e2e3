package sim

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Request is a prompt whose cache goes from one engine to others.
type Request struct {
	c         *Cluster
	id        int
	key       string
	token     []byte
	content   []byte
	prod      *Engine
	node      *Node // whose ranks offer, of an engine on several nodes; nil: the engine's only one
	consumers int
	tokens    int
	hole      int     // token in a block that the producer lacks; -1: none
	torn      int     // percent of an offer's blocks that are left out
	gaps      []gap   // what its offers lacked
	loose     bool    // its ranks extend by different tokens, and may be refused
	astray    int     // the rank that offers with another token or content digest than the others; -1: none
	gens      int     // offers under the key, minus one
	takers    []tally // of each generation: takes that are done
	drops     int
	early     int             // in which life the producer's daemon heard of a drop before there was an offer; 0: in none
	dropped   map[string]bool // engines that have dropped it, as far as the producer's daemon knows
	interest  transfer.Time   // time of the last sign of it, or the latest time at which that may come
	shared    bool            // with a mad node, which knows its token
}

func (c *Cluster) newRequest(prod *Engine, consumers, tokens int) *Request {
	r := &Request{c: c, id: len(c.requests) + 1, prod: prod, consumers: consumers, tokens: tokens, hole: -1, astray: -1, dropped: map[string]bool{}}
	r.key = fmt.Sprintf("r%d", r.id)
	r.token = fmt.Appendf(nil, "token-of-%08d", r.id)
	r.takers = []tally{{}}
	c.requests = append(c.requests, r)
	return r
}

// at says whether the request's offer is that node's. Only a mad node asks another one for it.
func (r *Request) at(n *Node) bool { return r.prod == nil || r.from() == n }

// lacks says whether the offer has no block for some of the tokens.
func (r *Request) lacks(group uint32, from, to int) bool {
	if group != stateGroup && to > r.tokens || group == 1 && from < r.tokens-r.c.slides {
		return true
	}
	if slices.ContainsFunc(r.gaps, func(g gap) bool { return g.group == group && g.from < to && g.to > from }) {
		return true
	}
	if r.hole < 0 {
		return false
	}
	bs := r.prod.shape.blockSize
	first := r.hole / bs * bs
	return from < first+bs && to > first
}

// untaken says whether some of the tokens are in an extension that the daemon may not have accepted. What comes after that
// may be accepted all the same, if it is of other groups or nothing came before; then the offer lacks these tokens.
func (r *Request) untaken(group uint32, from, to int) bool {
	within := func(b layout.BlockList) bool {
		first, stop := tokensOf(b)
		return b.Group == group && first < to && stop > from
	}
	for _, o := range r.c.ops {
		if o.req != r {
			continue
		}
		for _, x := range o.untaken {
			if x, ok := x.(*transfer.ExtendOp); ok && slices.ContainsFunc(x.Blocks, within) {
				return true
			}
		}
	}
	return false
}

// extends notes that an extension is submitted, or would have been, accepts that it was accepted.
func (o *Op) extends(x transfer.Op) {
	if !slices.Contains(o.untaken, x) {
		o.untaken = append(o.untaken, x)
	}
}

func (o *Op) accepts(x transfer.Op) {
	o.untaken = slices.DeleteFunc(o.untaken, func(y transfer.Op) bool { return y == x })
}

// unaccepted says whether a segment of an offer is in an extension that the daemon may not have accepted.
func (o *Op) unaccepted(seg []layout.BlockList) bool {
	return slices.ContainsFunc(o.untaken, func(x transfer.Op) bool {
		ext, ok := x.(*transfer.ExtendOp)
		return ok && len(seg) > 0 && len(ext.Blocks) > 0 && &ext.Blocks[0] == &seg[0]
	})
}

// consumed checks that as many as the offer was for had really taken it when it was done.
func (r *Request) consumed(o *Op) {
	if r.exposed() {
		return
	}
	n := r.drops
	for gen := range o.gen + 1 {
		if gen < o.gen && r.from().life < 2 {
			continue // a restarted daemon that hears of a commit counts it for what its engine offers then
		}
		n += len(r.takers[gen].engines())
	}
	if n < r.consumers {
		r.c.fail("op %d: offer of %s is done, but only %d of %d consumers are", o.tag, r.key, n, r.consumers)
	}
}

// wrong says what is wrong with a take of the request; "": nothing.
func (r *Request) wrong(e *Engine, token, content []byte) string {
	switch {
	case r.madeUp() || e.node.mad != nil: // a mad node may say that it is right
	case r.astray >= 0:
		return "its ranks do not agree on what is offered"
	case !bytes.Equal(token, r.token):
		return "its token is not the offer's"
	case !bytes.Equal(content, r.content):
		return "its content digest is not the offer's"
	case r.prod != nil && r.prod.shape.model != e.shape.model:
		return "its model is not the offer's"
	}
	return ""
}

// offerPlan is how a producer goes about its offer.
type offerPlan struct {
	cuts    []int // tokens after each segment; the last is the offer's end
	ahead   int   // steps of the model until the blocks are written
	layered bool
	window  window
	lease   transfer.Time
	open    bool // the last segment does not seal it
}

// offer offers the request's blocks, by the scheduler or by each worker.
func (r *Request) offer(p offerPlan) []*Op {
	var ops []*Op
	for _, s := range r.prod.askers() {
		if r.node != nil && s.node != r.node {
			continue
		}
		if o := r.offerBy(s, p); o != nil {
			ops = append(ops, o)
		}
	}
	return ops
}

func (r *Request) offerBy(s *Session, p offerPlan) *Op {
	c := r.c
	bs := s.cut().blockSize
	ids := s.alloc(s.cut().need(r.tokens))
	if ids == nil || !s.takesIn() || c.opts.Ragged && slices.ContainsFunc(s.ranks(), (*Session).unheardOf) || s.outlived() {
		return nil
	}
	held := append([]uint32(nil), ids...)
	if r.hole >= 0 {
		ids[r.hole/bs] = layout.NoBlock
	}
	o := c.newOp("offer", s, s.ranks())
	o.req, o.gen, o.ids, o.layered, o.short = r, r.gens, ids, p.layered, r.loose || c.opts.Ragged && s.uneven()
	if r.hole >= 0 { // the block that is not offered stays with its owner
		s.pool.free = append(s.pool.free, held[r.hole/bs])
	}
	at := 0
	if r.loose {
		p.cuts = r.pieces()
	}
	for i, cut := range p.cuts {
		blocks := s.blocks(at, cut, r.tokens, ids, p.window)
		r.lackStates(blocks)
		if r.torn > 0 {
			blocks = r.lack(blocks, s.cut(), i == 0, i == len(p.cuts)-1)
		}
		o.offers(blocks)
		at = cut
	}
	when := transfer.Time(0)
	o.bare = c.opts.Ragged && c.rng.hit(10)
	apart := c.opts.Ragged && !p.open && !o.short && c.rng.hit(10) // sealed by an operation of its own
	for i, blocks := range o.segs {
		last := i == len(p.cuts)-1 && !p.open && !apart
		after := o.write(blocks, p.ahead+i, p.layered)
		if i == 0 {
			in := &transfer.OfferOp{
				Key: []byte(r.key), Token: r.token, Content: r.content, Lease: p.lease, Consumers: r.consumers,
				After: after, Sealed: last, Layered: p.layered, Blocks: blocks,
			}
			if s.rank == r.astray && s.role == transfer.Worker {
				in.Token, in.Content = pick(&c.rng, [][]byte{wrongToken, r.token}), []byte("astray")
			}
			if o.bare {
				in.After, in.Sealed, in.Layered, in.Blocks = 0, false, false, nil
			}
			o.submit(in)
		}
		if i > 0 || o.bare {
			ext := &transfer.ExtendOp{Target: o.user, After: after, Sealed: last, Layered: p.layered, Blocks: blocks}
			when = max(when, transfer.Time(i)*c.rng.span(5*ms, 300*ms)+40*ms) // one after the other
			c.after(when, func() {
				switch {
				case o.ends[s] != nil || !s.open:
				case o.bare && i > 0 && len(o.more) == 0: // it was refused that from which this goes on, or not answered yet
					o.short = true
					o.extends(ext)
				default:
					c.newSmall(s, ext)
				}
			})
		}
	}
	if apart {
		c.after(when, o.sealLate)
	}
	return o
}

// sealLate seals an offer once the answers to its extensions have come, unless one was refused.
func (o *Op) sealLate() {
	c, s := o.c, o.sess
	switch {
	case o.ends[s] != nil || !s.open || o.short:
	case slices.ContainsFunc(c.ops, func(x *Op) bool { return x.sess == s && s.extended(x.in) == o && x.ends[s] == nil }):
		c.after(c.rng.span(5*ms, 100*ms), o.sealLate)
	default:
		c.newSmall(s, &transfer.SealOp{Target: o.user})
	}
}

// extended returns the offer that an operation extends or seals; nil: none.
func (s *Session) extended(in transfer.Op) *Op {
	var o *Op
	switch in := in.(type) {
	case *transfer.ExtendOp:
		o = s.byUser[in.Target]
	case *transfer.SealOp:
		o = s.byUser[in.Target]
	}
	if o == nil || o.kind != "offer" {
		return nil
	}
	return o
}

// offers adds a segment to an offer and notes that its blocks are held.
func (o *Op) offers(blocks []layout.BlockList) {
	o.segs = append(o.segs, blocks)
	for _, w := range o.ranksOf() {
		for _, at := range w.mem.places(blocks) {
			w.src[at] = o
		}
	}
}

// write plans the model's writing of blocks and returns the progress after which they are ready.
func (o *Op) write(blocks []layout.BlockList, ahead int, layered bool) uint64 {
	after := uint64(0)
	for _, w := range o.ranksOf() {
		after = max(after, (w.progress>>16+uint64(ahead))<<16)
	}
	for _, w := range o.ranksOf() {
		all := len(w.mem.part.layers)
		put := func(first, last int) func() {
			return func() {
				if !o.freed && (w.open || ahead == 0 && !w.drained) { // what is written at once is there, even if the rank has died since
					for _, b := range blocks {
						w.mem.write(o.req.id, o.gen, b, first, last)
					}
				}
			}
		}
		switch {
		case layered:
			for l := range all {
				w.writes = append(w.writes, write{after | uint64(l+1), put(l, l+1)})
			}
		case ahead == 0:
			put(0, all)()
		default:
			w.writes = append(w.writes, write{after, put(0, all)})
		}
	}
	if ahead == 0 && !layered {
		return 0
	}
	return after
}

// newSmall submits an extension, a cancel or a withdrawal.
func (c *Cluster) newSmall(s *Session, in transfer.Op) *Op {
	o := c.newOp("small", s, nil)
	o.timeout = 1 * ms
	o.submit(in)
	if offer := s.extended(in); offer != nil {
		offer.extends(in)
		offer.short = offer.short || o.in == nil // nobody was there to take it
	}
	return o
}

// takePlan is how a consumer goes about its take.
type takePlan struct {
	first, stop int
	peer        string
	timeout     transfer.Time
	ahead       int
	layered     bool
	attempt     int
	token       []byte
	content     []byte
	window      window
	conflict    string // its blocks are in use, byTake or byOffer
}

// take takes the request's tokens, by the scheduler, or in parts by each session that takes for itself.
func (r *Request) take(e *Engine, p takePlan) []*Op {
	var ops []*Op
	askers := e.askers()
	for i, s := range askers {
		if o := r.takeBy(s, p, i, len(askers)); o != nil {
			ops = append(ops, o)
		}
	}
	return ops
}

func (r *Request) takeBy(s *Session, p takePlan, part, parts int) *Op {
	c := r.c
	if !s.takesIn() || slices.ContainsFunc(s.ranks(), (*Session).absent) || s.outlived() { // a scheduler waits for new ranks
		return nil
	}
	var ids []uint32
	var lists []layout.BlockList
	if p.conflict != "" {
		lists = s.ranks()[0].inUse(p.conflict, p.stop)
	} else if ids = s.alloc(s.cut().need(p.stop)); ids != nil && c.opts.Ragged {
		lists = p.wants(s, ids)
	} else if ids != nil {
		lists = s.blocks(p.first, p.stop, p.stop, ids, p.window)
	}
	if lists == nil {
		return nil
	}
	o := c.newOp("take", s, s.ranks())
	o.req, o.ids, o.timeout, o.part, o.parts, o.attempt, o.conflict = r, ids, p.timeout, part, parts, p.attempt, p.conflict != ""
	o.wrong = r.wrong(s.eng, p.token, p.content)
	if c.opts.Ragged && p.conflict == "" && c.rng.hit(3) {
		o.shorten(lists)
	}
	o.lists, o.shape, o.layered = lists, s.cut(), p.layered
	for _, w := range o.ranksOf() {
		if p.ahead > 0 {
			o.after = max(o.after, (w.progress>>16+uint64(p.ahead))<<16)
		}
		if p.conflict != "" {
			continue
		}
		for _, at := range w.mem.places(lists) {
			w.dst[at] = o
		}
	}
	slot := transfer.NoSlot
	if p.layered || !c.fixed {
		slot = uint32(o.user)
	}
	o.submit(&transfer.TakeOp{
		Key: []byte(r.key), Token: p.token, Content: p.content, Peer: p.peer, TakeID: uint64(r.id*100 + p.attempt),
		Part: part, Parts: parts, After: o.after, Layered: p.layered, LayerSlot: slot, Timeout: p.timeout, Blocks: o.lists,
	})
	return o
}
