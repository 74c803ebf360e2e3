package plan_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// placer lays the views of one group of a rank into memory, in one of the orders of dimensions that engines use, with and
// without gaps.
type placer struct {
	t         *rapid.T
	views     []layout.View
	base, end uint64
	inBlock   bool // block dimension outermost
}

func (p *placer) place(region layout.RegionID) {
	gaps := flip(p.t, "gaps", 3)
	if flip(p.t, "any order", 3) {
		copy(p.views, rapid.Permutation(p.views).Draw(p.t, "order"))
	}
	for i := range p.views {
		p.views[i].Region = region
	}
	same := func(v layout.View) bool {
		return v.Heads == p.views[0].Heads && v.ContentBytes == p.views[0].ContentBytes
	}
	switch {
	case !p.inBlock && flip(p.t, "tensor each", 2):
		order := rapid.Permutation([]string{"block", "token", "head"}).Draw(p.t, "order")
		if flip(p.t, "plain order", 2) {
			order = rapid.SampledFrom([][]string{{"block", "token", "head"}, {"block", "head", "token"}}).Draw(p.t, "order")
		}
		at := p.base
		for i := range p.views {
			at = p.nest(p.views[i:i+1], at, order, gaps)
		}
		p.end = at
	case !p.inBlock && !slices.ContainsFunc(p.views, func(v layout.View) bool { return !same(v) }):
		order := rapid.Permutation([]string{"block", "view", "token", "head"}).Draw(p.t, "order")
		p.end = p.nest(p.views, p.base, order, gaps)
	default:
		p.blocks(gaps)
	}
}

// nest places views of one shape as the dimensions say, outermost first; it returns the end.
func (p *placer) nest(views []layout.View, base uint64, order []string, gaps bool) uint64 {
	v := views[0]
	if v.Kind == layout.Opaque {
		v.Heads, v.BlockSize = 1, 1
	}
	extent := v.ContentBytes
	for _, dim := range slices.Backward(order) {
		stride := extent
		if gaps && flip(p.t, "gap", 3) {
			stride += uint64(rapid.IntRange(1, 4).Draw(p.t, "pad"))
		}
		count := map[string]uint64{"block": v.NumBlocks, "view": uint64(len(views)), "token": uint64(v.BlockSize), "head": uint64(v.Heads)}[dim]
		for i := range views {
			w := &views[i]
			switch dim {
			case "block":
				w.BlockStride = stride
			case "view":
				w.Base = base + uint64(i)*stride
			case "token":
				w.TokenStride = stride
			case "head":
				w.HeadStride = stride
			}
			if w.Kind == layout.Opaque {
				w.TokenStride, w.HeadStride = 0, 0
			}
		}
		extent = (count-1)*stride + extent
	}
	if !slices.Contains(order, "view") {
		views[0].Base = base
	}
	return base + extent
}

// blocks places one view behind the other inside each block.
func (p *placer) blocks(gaps bool) {
	at := p.base
	for i := range p.views {
		order := rapid.Permutation([]string{"token", "head"}).Draw(p.t, "order")
		at = p.nest(p.views[i:i+1], at, order, gaps)
	}
	stride := at - p.base
	if gaps {
		stride += uint64(rapid.IntRange(0, 3).Draw(p.t, "pad"))
	}
	for i := range p.views {
		p.views[i].BlockStride = stride
	}
	p.end = p.base + stride*p.views[0].NumBlocks
}
