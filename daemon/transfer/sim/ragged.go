package sim

import (
	"math"
	"slices"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// In ragged seeds blocks do not fit together. Offers have holes, begin late, end early or leave a group out, and each
// rank that offers for itself lacks something else. They are extended many times, sometimes by other tokens at each
// rank. Takes have holes, too. The ranks of one engine cut the tokens into blocks of different sizes, and a rank's
// successor into others again. Copies of slices are late, and spoil what is there already. The progress of a rank is
// sometimes read as it was before. Two ranks may have the same, and lists come in any order. Offers may begin with
// nothing and be sealed by an operation of its own, watches and drops are cancelled, and who collects completions late
// may hang for seconds.
//
// A take has to say exactly what it lacks, and what it does not list has to be right in every rank.

// gap is tokens of a group that an offer lacked at some rank.
type gap struct {
	group    uint32
	from, to int // to is exclusive
}

var blockSizes = []int{2, 3, 4}

// fray makes what is there be spoiled more often while a commit waits for its fence.
func (f *faults) fray(r *rng) {
	f.lateSlice, f.lost = r.in(20, 60), r.in(5, 25)
	f.corrupt, f.torn = r.in(10, 30), r.in(0, 10)
	f.fenceSlow = r.in(60, 100)
	f.still = pick(r, []int{0, 10, 60})
	f.device = pick(r, []int{0, 0, 0, 1, 4})
}

// fray draws the block sizes of an engine.
func (s *shape) fray(r *rng) {
	s.blockSize = pick(r, blockSizes)
	if s.second > 0 {
		s.second = pick(r, blockSizes)
	}
	if s.split == "tp" && r.hit(30) {
		s.split = "same"
	}
	if s.ranks() > 1 && r.hit(45) {
		s.odd = pick(r, blockSizes)
		if s.second > 0 && r.hit(60) {
			s.oddSecond = pick(r, blockSizes)
		}
	}
}

// changes draws whether a rank's successor cuts its memory into other blocks.
func (s *shape) changes(r *rng, rank int) {
	switch {
	case !r.hit(30):
	case rank%2 == 1:
		s.odd = pick(r, blockSizes)
	default:
		s.odd = s.of(1).blockSize
		s.blockSize = pick(r, blockSizes)
	}
}

// of returns the shape of one rank's memory.
func (s shape) of(rank int) shape {
	if rank%2 == 1 && s.odd > 0 {
		s.blockSize = s.odd
	}
	if rank%2 == 1 && s.oddSecond > 0 {
		s.second = s.oddSecond
	}
	return s
}

// cut is the shape by which a session names blocks: that of its ranks. If two of them cut one group in different ways, it
// is the first one's, and the daemon refuses the list.
func (s *Session) cut() shape {
	ranks := s.ranks()
	out := ranks[0].mem.shape
	for g, size := range []*int{&out.blockSize, &out.second} {
		if i := slices.IndexFunc(ranks, func(w *Session) bool { return slices.Contains(w.mem.groups(), uint32(g)) }); i >= 0 {
			*size = ranks[i].mem.shape.size(uint32(g))
		}
	}
	return out
}

// uneven says whether two of the ranks that the session names blocks of cut one group in different ways.
func (s *Session) uneven() bool {
	all := s.cut()
	return slices.ContainsFunc(s.ranks(), func(w *Session) bool {
		return slices.ContainsFunc(w.mem.groups(), func(g uint32) bool { return w.mem.shape.size(g) != all.size(g) })
	})
}

// seemsRight says whether the lists have the right lengths for all of the session's ranks, and one of them names more
// than one block.
func (s *Session) seemsRight(lists []layout.BlockList) bool {
	many := false
	for _, b := range lists {
		many = many || len(b.IDs) > 1
		for _, w := range s.ranks() {
			size := w.mem.shape.size(b.Group)
			from, to := int(b.FirstToken)/size, (int(b.FirstToken+b.NTokens)+size-1)/size
			if slices.Contains(w.mem.groups(), b.Group) && b.Group != stateGroup && to-from != len(b.IDs) {
				return false
			}
		}
	}
	return many
}

// named says whether the lists name a block of which something is asked for.
func (s *Session) named(lists []layout.BlockList) bool {
	lists = slices.DeleteFunc(slices.Clone(lists), func(b layout.BlockList) bool { return b.NTokens == 0 })
	return slices.ContainsFunc(s.ranks(), func(w *Session) bool { return len(w.mem.places(lists)) > 0 })
}

// from returns the node whose ranks offer.
func (r *Request) from() *Node {
	if r.node != nil {
		return r.node
	}
	return r.prod.node
}

// has says whether the ranks that offer have a head of a layer. Of an engine on several nodes, those of one node need
// not: what they do not have is not taken from there, and is not missing either.
func (r *Request) has(layer uint32, head int) bool {
	if r.node == nil {
		return true
	}
	for rank, e := 0, r.prod; rank < e.shape.ranks(); rank++ {
		p := e.shape.part(rank)
		if e.at(transfer.Worker, rank) == r.node && slices.Contains(p.layers, layer) && (layer == stateLayer || head >= p.firstHead && head < p.firstHead+p.heads) {
			return true
		}
	}
	return false
}

// tear leaves blocks out of lists: in percent of all cases one of them, the first ones, or the last ones. What is left
// out is noted. first and last say which piece of an offer this is: only the first may begin late, and only the last
// may end early.
func (c *Cluster) tear(lists []layout.BlockList, s shape, percent int, first, last bool, note func(gap)) []layout.BlockList {
	r, out := &c.rng, []layout.BlockList{}
	for _, b := range lists {
		size := s.size(b.Group)
		from, to := tokensOf(b)
		if from == to {
			out = append(out, b)
			continue
		}
		if first && last && r.hit(percent/4) {
			note(gap{b.Group, from, to})
			continue
		}
		if first && last && b.Group != stateGroup && r.hit(percent/4) { // of no tokens, in a block or between two
			note(gap{b.Group, from, to})
			b.NTokens, b.IDs = 0, slices.Clone(b.IDs[:min(from%size, 1)])
			out = append(out, b)
			continue
		}
		start, stop := from, to
		if first && r.hit(percent) && b.Group != stateGroup {
			start = r.in(from, to-1)
			note(gap{b.Group, from, start})
		}
		if last && r.hit(percent) {
			stop = r.in(start+1, to)
			note(gap{b.Group, stop, to})
		}
		skip := from / size
		if b.Group != stateGroup {
			b.FirstToken, b.NTokens = uint32(start), uint32(stop-start)
		}
		b.IDs = slices.Clone(b.IDs[start/size-skip : (stop+size-1)/size-skip])
		for i := range b.IDs {
			if at := (start/size + i) * size; r.hit(percent) {
				b.IDs[i] = layout.NoBlock
				note(gap{b.Group, max(at, start), min(at+size, stop)})
			}
		}
		out = append(out, b)
	}
	if r.hit(20) {
		slices.Reverse(out) // lists may come in any order
	}
	return out
}

// lack leaves blocks out of a piece of the request's offer.
func (r *Request) lack(lists []layout.BlockList, s shape, first, last bool) []layout.BlockList {
	return r.c.tear(lists, s, r.torn, first, last, func(g gap) { r.gaps = append(r.gaps, g) })
}

// pieces cuts an offer into up to five pieces.
func (r *Request) pieces() []int {
	x := &r.c.rng
	cuts := []int{r.tokens}
	for range x.in(0, 4) {
		cuts = append(cuts, x.in(1, r.tokens))
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

// wants draws which blocks a ragged take asks for.
func (p *takePlan) wants(s *Session, ids []uint32) []layout.BlockList {
	c, r := s.eng.c, &s.eng.c.rng
	lists := s.blocks(p.first, p.stop, p.stop, ids, p.window)
	if s.uneven() && p.stop > 1 {
		for range 40 {
			first := r.n(p.stop - 1)
			if some := s.blocks(first, r.in(first+1, p.stop), p.stop, ids, p.window); s.seemsRight(some) {
				return some
			}
		}
	}
	if r.hit(30) {
		if some := c.tear(lists, s.cut(), r.in(5, 40), true, true, func(gap) {}); s.named(some) {
			return some // its bytes have to tell which offer they are of
		}
	}
	return lists
}

// shorten makes a take one with too few blocks for its tokens, which has to be refused.
func (o *Op) shorten(lists []layout.BlockList) {
	i := o.c.rng.n(len(lists))
	if b := &lists[i]; b.Group != stateGroup && len(b.IDs) > 1 {
		b.IDs = b.IDs[:len(b.IDs)-1]
		o.wrong = "it names too few blocks"
	}
}

// failing is what a plan, a slice or an inline payload ends with: mostly nothing is wrong with it.
func (c *Cluster) failing() transfer.Cause {
	if c.faults.device > 0 && !c.calm && c.rng.hit(c.faults.device) {
		return transfer.Cause{Reason: pick(&c.rng, []transfer.Reason{transfer.Unavailable, transfer.Quota, transfer.Corrupt}), Text: "the device has an error"}
	}
	return transfer.Cause{}
}

// lapses has the daemon see the progress of a rank as it was a while ago.
func (s *Session) lapses() {
	if c := s.eng.c; c.opts.Ragged && c.rng.hit(10) {
		s.node.event(c.rng.span(0, 100*ms), transfer.Progress{Session: s.id, Value: s.progress})
	}
}

// checkNamed checks which blocks the end of a take says must not be used: of those that it names, and only if it
// failed.
func (o *Op) checkNamed(e transfer.Complete) {
	if e.Status != transfer.Failed && len(e.Failed) > 0 {
		o.c.fail("op %d (%s): status %d, and blocks %v are said to be failed", o.tag, o.kind, e.Status, e.Failed)
	}
	for _, r := range e.Failed {
		if r.Count == math.MaxUint32 {
			continue // the library says so of all
		}
		for id := r.First; id-r.First < r.Count; id++ {
			if !slices.ContainsFunc(o.lists, func(b layout.BlockList) bool { return b.Group == r.Group && slices.Contains(b.IDs, id) }) {
				o.c.fail("op %d (%s): block %d of group %d is said to be failed, of which it is not", o.tag, o.kind, id, r.Group)
				return
			}
		}
	}
}

// all names all blocks of a take as the library does, which does not know more.
func (o *Op) all() []layout.Run {
	var out []layout.Run
	for _, b := range o.lists {
		out = append(out, layout.Run{Group: b.Group, Count: math.MaxUint32})
	}
	return out
}

// meet counts how takes end that lack something.
func (o *Op) meet(e transfer.Complete) {
	switch {
	case e.Status != transfer.Failed || o.kind != "take" && o.kind != "offer":
	case strings.Contains(e.Text, "lacks some of the blocks"):
		o.c.lacked++
	case strings.Contains(e.Text, "a late copy of a slice spoiled it") && len(o.holes()) > 0:
		o.c.spoiled++
	case strings.Contains(e.Text, "give them groups of their own"):
		o.c.uneven++
	}
}
