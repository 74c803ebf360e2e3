package layout

import "fmt"

// Views of a group that begin at the same byte are layers that share their KV (shared.go). Views that have the same shape and do not begin there
// have nothing to share: an element that lies partly over one of another layer, or over one of another token, was put there by a wrong base
// or stride, and taking both would spoil each. Other shapes are not compared: one view may name a part of what another has.

// grid is where the elements of a view lie within a block, or within a piece of one.
type grid struct {
	shape   int       // equal of views whose elements lie alike
	steps   [2]spread // larger strides first; of one place where there is no such dimension
	content int64
}

type spread struct{ count, stride int64 }

// grids returns each view's.
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

// tear says whether elements of one block overlap in two views of which these pieces lie over each other. p.lo <= q.lo.
func (l *Layout) tear(grids []grid, p, q *piece) bool {
	v, w := &l.views[p.view], &l.views[q.view]
	g := &grids[p.view]
	return v.Group == w.Group && v.Base != w.Base && g.shape == grids[q.view].shape && g.meets(int64(q.lo-p.lo), g.steps[:])
}

// meets says whether an element of the grid overlaps one of its like, which lies shift bytes behind. The smaller steps reach less far than a
// larger one: only the two next to the shift can come near enough.
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
