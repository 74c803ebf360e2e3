package transfer

import (
	"cmp"
	"math"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// cut is what all ranks' pieces with one number have of a group, from the first token to the last: a segment of each
// take (see spans). Tokens that a rank has within another segment would be missing from this one, although the rank
// offered them. So a piece must not reach into what other ranks have in earlier or later pieces.
type cut struct {
	seg        int
	first, end uint32 // an opaque group's are all tokens
}

func cutOf(ranks []*session, seg int, b *layout.BlockList) cut {
	if isOpaque(ranks, b.Group) {
		return cut{seg, 0, math.MaxUint32}
	}
	return cut{seg, b.FirstToken, b.FirstToken + b.NTokens}
}

// nothing says whether a list is for no tokens. It may name a block all the same: the one within which it begins. Those
// that an opaque list names count whatever tokens it says.
func nothing(ranks []*session, b *layout.BlockList) bool {
	return len(b.IDs) == 0 || b.NTokens == 0 && !isOpaque(ranks, b.Group)
}

// place is where the cut of that piece is in a group's cuts, or belongs.
func (c cut) place(cuts []cut) (int, bool) {
	return slices.BinarySearchFunc(cuts, c, func(a, b cut) int { return cmp.Compare(a.seg, b.seg) })
}

// inStep checks that the piece with that number reaches into no other piece of another rank.
func (o *offer) inStep(ranks []*session, seg int, lists []layout.BlockList) Cause {
	if o.cuts == nil {
		return Cause{}
	}
	for i := range lists {
		b := &lists[i]
		if nothing(ranks, b) {
			continue
		}
		c, cuts := cutOf(ranks, seg, b), o.cuts[b.Group]
		at, same := c.place(cuts)
		other := -1
		if at > 0 && cuts[at-1].end > c.first {
			other = at - 1
		}
		if same {
			at++
		}
		if other < 0 && at < len(cuts) && cuts[at].first < c.end {
			other = at
		}
		switch {
		case other < 0:
		case isOpaque(ranks, b.Group):
			return because(Invalid, "key %s: group %d is opaque, and has its blocks in piece %d here and in piece %d at another rank; give them with the same piece on every rank",
				short(o.key), b.Group, seg, cuts[other].seg)
		default:
			return because(Invalid, "key %s: group %d: piece %d has tokens %d to %d here, and piece %d has tokens %d to %d of all ranks; extend on every rank by the same tokens",
				short(o.key), b.Group, seg, c.first, c.end, cuts[other].seg, cuts[other].first, cuts[other].end)
		}
	}
	return Cause{}
}

// cut notes what a piece has.
func (o *offer) cut(mb *member, seg int, lists []layout.BlockList) {
	if o.joined && len(o.members) == 1 {
		return // no other rank will come
	}
	for i := range lists {
		b := &lists[i]
		if nothing(mb.ranks, b) {
			continue
		}
		if o.cuts == nil {
			o.cuts = map[uint32][]cut{}
		}
		c, cuts := cutOf(mb.ranks, seg, b), o.cuts[b.Group]
		if at, same := c.place(cuts); same {
			cuts[at].first, cuts[at].end = min(cuts[at].first, c.first), max(cuts[at].end, c.end)
		} else {
			o.cuts[b.Group] = slices.Insert(cuts, at, c)
		}
	}
}
