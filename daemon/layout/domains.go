package layout

import (
	"cmp"
	"fmt"
	"slices"
)

// Hybrid models lay the tensors of several groups over the same memory: block b of one group and block b of another
// are then the same bytes. Such groups form a hold domain: they share one table of holds, in which an id stands for
// the blocks of all of them. Memory that groups share in any other way (unequal strides, shifted bases) is refused,
// because no table of blocks could say who holds what.

// maxPairs bounds the comparisons for one layout: as many as there are pairs of MaxViews views.
const maxPairs = MaxViews * (MaxViews + 1) / 2

// maxPieces bounds the pieces into which all views are cut, because a client or a peer could ask for very many with a
// few numbers. A view of a real engine is one piece, or one for each head, or one for each head and token of a block.
const maxPieces = 1 << 15

// piece is a part of a view in which the elements of one block lie within one block stride.
type piece struct {
	region RegionID
	lo, hi uint64 // first and end byte of all blocks
	stride uint64
	blocks uint64
	extent uint64 // bytes of one block, gaps included
	view   int    // its index in canonical order
}

// makeDomains joins groups that overlay each other. If whole is set it also refuses views that tear (torn.go).
func (l *Layout) makeDomains(index []int, pieces []piece, whole bool) error {
	joined := make([]int, len(l.groups)) // union-find over groups
	groupOf := make([]int, len(l.views))
	for i, n := 0, 0; i < len(l.groups); i++ {
		joined[i] = i
		for range l.groups[i].Views {
			groupOf[n] = i
			n++
		}
	}
	root := func(i int) int {
		for joined[i] != i {
			i = joined[i]
		}
		return i
	}
	var grids []grid
	if whole {
		grids = l.grids()
	}
	pairs := 0
	for i := range pieces {
		for j := i + 1; j < len(pieces) && pieces[j].region == pieces[i].region && pieces[j].lo < pieces[i].hi; j++ {
			if pairs++; pairs > maxPairs {
				return fmt.Errorf("layout: views lie interleaved in too many pieces (more than %d pairs); use tensors whose blocks are whole", maxPairs)
			}
			same, apart := pieces[i].meets(&pieces[j])
			if !apart {
				return overlapError(l, index, pieces[i].view, pieces[j].view)
			}
			if whole && same && l.tear(grids, &pieces[i], &pieces[j]) {
				return l.tornError(index, pieces[i].view, pieces[j].view)
			}
			if g, h := groupOf[pieces[i].view], groupOf[pieces[j].view]; same && g != h {
				a, b := root(g), root(h)
				joined[max(a, b)] = min(a, b)
			}
		}
	}
	return l.numberDomains(root)
}

func (l *Layout) numberDomains(root func(int) int) error {
	var total uint64
	for i := range l.groups {
		g := &l.groups[i]
		if r := root(i); r != i {
			g.domain = l.groups[r].domain
		} else {
			g.domain = len(l.domains)
			l.domains = append(l.domains, 0)
		}
		if d := &l.domains[g.domain]; g.NumBlocks > *d {
			total += g.NumBlocks - *d
			*d = g.NumBlocks
		}
	}
	if total > MaxBlocks {
		return fmt.Errorf("layout: %d blocks in all groups; must be at most %d", total, uint64(MaxBlocks))
	}
	return nil
}

func overlapError(l *Layout, index []int, a, b int) error {
	v, w := &l.views[a], &l.views[b]
	return fmt.Errorf("layout: views %d and %d (groups %d and %d) lie over each other in region %#x with different blocks"+
		" (base %d and %d, block_stride %d and %d); blocks that share bytes must have the same id",
		index[a], index[b], v.Group, w.Group, uint64(v.Region), v.Base, w.Base, v.BlockStride, w.BlockStride)
}

// inBlock says whether the whole dimension lies within one block stride.
func (v *View) inBlock(d *dim) bool {
	return d.name != "block_stride" && (v.NumBlocks == 1 || d.stride < v.BlockStride)
}

// pieces cuts the views along the dimensions that reach beyond a block stride ([head][block][token] tensors). The
// pieces are in order of region and offset.
func (l *Layout) pieces(index []int) ([]piece, error) {
	var out []piece
	for i := range l.views {
		v := &l.views[i]
		p := piece{region: v.Region, blocks: v.NumBlocks, stride: v.BlockStride, extent: v.ContentBytes, view: i}
		at := []uint64{v.Base}
		d, n := v.dims()
		for k, x := range d[:n] {
			switch {
			case x.name == "block_stride":
			case v.inBlock(&x):
				p.extent += (x.count - 1) * x.stride
			case uint64(len(at)+len(out))+(x.count-1)*uint64(len(at)) > maxPieces:
				return nil, fmt.Errorf("layout: view %d: %s %d spreads the tokens and heads of a block over too many places (more than %d in all views); use tensors whose blocks are whole",
					index[i], d[k].name, x.stride, maxPieces)
			default:
				for _, first := range at {
					for c := uint64(1); c < x.count; c++ {
						at = append(at, first+c*x.stride)
					}
				}
			}
		}
		for _, first := range at {
			p.lo, p.hi = first, first+(p.blocks-1)*p.stride+p.extent
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b piece) int {
		if c := cmp.Compare(a.region, b.region); c != 0 {
			return c
		}
		if c := cmp.Compare(a.lo, b.lo); c != 0 {
			return c
		}
		return cmp.Compare(a.view, b.view)
	})
	return out, nil
}

// meets says whether blocks of the same id share bytes, and whether blocks of different ids stay apart. Gaps inside a
// block count as its bytes. The caller ensures p.lo <= q.lo < p.hi.
func (p *piece) meets(q *piece) (same, apart bool) {
	shift := q.lo - p.lo
	same = shift < p.extent
	stride := p.stride
	switch {
	case p.blocks == 1 && q.blocks == 1:
		return same, true
	case p.blocks == 1:
		stride = q.stride
	case q.blocks > 1 && p.stride != q.stride:
		return same, false
	case p.extent <= stride && shift+q.extent <= stride:
		return same, true // both within one stride: the common case
	}
	// Block i of p meets block i-k of q when shift-p.extent < k*stride < shift+q.extent.
	most := int64((shift + q.extent - 1) / stride)
	var least int64
	if shift >= p.extent {
		least = int64((shift-p.extent)/stride) + 1
	} else {
		least = -int64((p.extent - shift - 1) / stride)
	}
	least = max(least, -int64(q.blocks-1))
	most = min(most, int64(p.blocks-1))
	return same, least > most || least == 0 && most == 0
}
