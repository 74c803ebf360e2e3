package layout

import "fmt"

// Views of a group that begin at the same byte are layers that share their KV (shared.go). Views of the same shape
// that begin at different bytes have nothing to share. If an element of one partly covers an element of another
// layer, or covers one of another token, a base or stride is wrong, and taking both would spoil each. Views of
// different shapes are not compared: one may name a part of what the other has.

// grid is where a view's elements lie within a block, or within a piece of one.
type grid struct {
	shape   int       // equal for views whose elements lie alike
	steps   [2]spread // larger strides first; count is 1 where there is no such dimension
	content int64
}

type spread struct{ count, stride int64 }

// grids returns the grid of each view.
func (l *Layout) grids() []grid {
	type shape struct {
		dims    [3]dim
		content uint64
	}
	out := make([]grid, len(l.views))
	known := map[shape]int{}
	for i := range l.views {
		v := &l.views[i]
		d, n := v.dims()
		s := shape{d, v.ContentBytes}
		if _, ok := known[s]; !ok {
			known[s] = len(known)
		}
		g := grid{known[s], [2]spread{{1, maxOffset}, {1, maxOffset}}, int64(v.ContentBytes)}
		at := len(g.steps)
		for k := range d[:n] {
			if v.inBlock(&d[k]) {
				at--
				g.steps[at] = spread{int64(d[k].count), int64(d[k].stride)}
			}
		}
		out[i] = g
	}
	return out
}

// tear says whether the views of two overlapping pieces have elements that overlap within one block. p.lo <= q.lo.
func (l *Layout) tear(grids []grid, p, q *piece) bool {
	v, w := &l.views[p.view], &l.views[q.view]
	g := &grids[p.view]
	return v.Group == w.Group && v.Base != w.Base && g.shape == grids[q.view].shape && g.meets(int64(q.lo-p.lo), g.steps[:])
}

// meets says whether an element of the grid overlaps an element of the same grid moved by shift bytes. All smaller
// steps together reach less far than one larger step, so only the two multiples of it next to the shift can come near
// enough.
func (g *grid) meets(shift int64, steps []spread) bool {
	if len(steps) == 0 {
		return -g.content < shift && shift < g.content
	}
	s := &steps[0]
	k := shift / s.stride
	if shift < 0 {
		k--
	}
	for _, n := range [2]int64{k, k + 1} {
		if -s.count < n && n < s.count && g.meets(shift-n*s.stride, steps[1:]) {
			return true
		}
	}
	return false
}

func (l *Layout) tornError(index []int, a, b int) error {
	if index[a] > index[b] {
		a, b = b, a
	}
	v, w := &l.views[a], &l.views[b]
	return fmt.Errorf("layout: views %d and %d (layer %d part %q and layer %d part %q) of group %d overlap within a block (region %#x, base %d and %d): "+
		"give each memory of its own, or the same base if they share their KV",
		index[a], index[b], v.Layer, v.Part, w.Layer, w.Part, v.Group, uint64(v.Region), v.Base, w.Base)
}
