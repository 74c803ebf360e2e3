package plan

import (
	"cmp"
	"slices"
	"sort"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// unit is a sequence of parts that move together, chunk by chunk. If there are several, a whole block of all of them
// is one piece at both ends.
type unit struct {
	track                *track
	srcRegion, dstRegion layout.RegionID
	srcStride, dstStride uint64 // block strides
	parts                []part
	perToken             uint64
	start                uint64 // in the flow
	layer                uint32 // the lowest of its parts
}

// makeUnits fuses the segments of one flow where that makes longer pieces, and orders the units by group and layer.
// The segments are in the order of the destination's memory.
func (b *builder) makeUnits(segments []segment) []unit {
	units, parts := b.plan.room.units[:0], b.plan.room.parts[:0]
	if len(segments) > 1 || b.plan.room.used {
		units, parts = make([]unit, 0, len(segments)), make([]part, 0, len(segments))
	}
	b.plan.room.used = true
	for i := 0; i < len(segments); {
		s := &segments[i]
		n := 1 + alike(segments[i:])
		p := makePart(s, 1, 0, 0)
		if n > 1 {
			p = makePart(s, uint64(n), segments[i+1].srcOff()-s.srcOff(), segments[i+1].dstOff()-s.dstOff())
		}
		parts = append(parts, p)
		u := unit{
			track: s.track, srcRegion: s.s.Region, dstRegion: s.d.Region, srcStride: s.s.BlockStride, dstStride: s.d.BlockStride,
			parts: parts[len(parts)-1:], perToken: p.perToken, layer: s.d.Layer,
		}
		for k := 1; k < n; k++ {
			u.layer = min(u.layer, segments[i+k].d.Layer)
		}
		i += n
		if k := len(units) - 1; k >= 0 && units[k].takes(&u) {
			last := &units[k]
			last.parts = parts[len(parts)-len(last.parts)-1:]
			last.perToken += u.perToken
			last.layer = min(last.layer, u.layer)
			continue
		}
		units = append(units, u)
	}
	if len(units) == 1 {
		return units
	}
	slices.SortStableFunc(units, func(a, b unit) int {
		if c := cmp.Compare(a.track.group, b.track.group); c != 0 {
			return c
		}
		return cmp.Compare(a.layer, b.layer)
	})
	return units
}

// straight says whether consecutive tokens are also consecutive in memory, across blocks too, at the ends named by
// at. This holds for the blocks of a pipe's arena, and can hold for other blocks of a single view.
func (u *unit) straight(at side) bool {
	p := &u.parts[0]
	if len(u.parts) > 1 || !u.track.straight(at, u, p) {
		return false
	}
	for k := 1; k < p.n; k++ {
		if p.dims[k].count == 0 { // other tokens lie between a token's elements
			return false
		}
	}
	n := p.nest(1, at)
	return n.n == 0
}

func (t *track) straight(at side, u *unit, p *part) bool {
	return (at&atSrc == 0 || t.src.straight(p.srcTok, u.srcStride, p.perToken)) &&
		(at&atDst == 0 || t.dst.straight(p.dstTok, u.dstStride, p.perToken))
}

func (l *list) straight(tokenStride, blockStride, perToken uint64) bool {
	return (l.size == 1 || tokenStride == perToken) && blockStride == l.size*perToken && layout.IsAdjacent(l.ids)
}

// alike returns how many segments after the first continue it at even distances, so that one part with several views
// has longer pieces, not more of them.
func alike(s []segment) int {
	first := &s[0]
	for i := 1; i < len(s); i++ {
		src, dst := s[i].srcOff()-s[i-1].srcOff(), s[i].dstOff()-s[i-1].dstOff()
		switch {
		case !first.sameShape(&s[i]) || s[i].srcOff() <= s[i-1].srcOff() || s[i].dstOff() <= s[i-1].dstOff():
			return i - 1
		case i > 1 && (src != s[1].srcOff()-first.srcOff() || dst != s[1].dstOff()-first.dstOff()):
			return i - 1
		case i > 1:
			continue
		}
		tokens := min(first.track.src.size, first.track.dst.size)
		one, two := makePart(first, 1, 0, 0), makePart(first, 2, src, dst)
		n1, n2 := one.nest(tokens, atBoth), two.nest(tokens, atBoth)
		if n2.pieces() > n1.pieces() {
			return 0
		}
	}
	return len(s) - 1
}

func (s *segment) sameShape(o *segment) bool {
	return s.track == o.track && s.n == o.n && sameStrides(s.s, o.s) && sameStrides(s.d, o.d)
}

func sameStrides(v, w *layout.View) bool {
	return v.Region == w.Region && v.BlockStride == w.BlockStride && v.TokenStride == w.TokenStride &&
		v.HeadStride == w.HeadStride && v.ContentBytes == w.ContentBytes
}

// takes says whether v can be appended to u: a whole block of either is one piece at both ends, and v's piece follows
// u's.
func (u *unit) takes(v *unit) bool {
	tokens := u.track.src.size
	if u.track != v.track || u.track.dst.size != tokens || u.srcRegion != v.srcRegion || u.dstRegion != v.dstRegion ||
		u.srcStride != v.srcStride || u.dstStride != v.dstStride {
		return false
	}
	last, next := &u.parts[len(u.parts)-1], &v.parts[0]
	a, b := last.nest(tokens, atBoth), next.nest(tokens, atBoth)
	return a.n == 0 && b.n == 0 && next.src == last.src+a.run && next.dst == last.dst+a.run
}

// heads returns how many elements the segment's heads are per token. An opaque block is one element.
func (s *segment) heads() uint64 {
	if s.d.Kind == layout.Opaque {
		return 1
	}
	return uint64(s.n)
}

func (b *builder) sameFlow(x, y *segment) bool {
	return x.src == y.src && x.dst == y.dst && (!b.layered || x.d.Layer == y.d.Layer)
}

// sortSegments orders the segments by flow, and within a flow by the destination's memory.
func (b *builder) sortSegments() {
	if len(b.segments) < 2 {
		return
	}
	less := func(i, k int) bool { return b.before(&b.segments[i], &b.segments[k]) }
	if !sort.SliceIsSorted(b.segments, less) { // mostly true
		sort.Slice(b.segments, less)
	}
}

// before is a total order: segments of views at the same place differ in layer, part or head.
func (b *builder) before(x, y *segment) bool {
	switch {
	case b.layered && x.d.Layer != y.d.Layer:
		return x.d.Layer < y.d.Layer
	case x.dst != y.dst:
		return x.dst < y.dst
	case x.src != y.src:
		return x.src < y.src
	case x.d.Group != y.d.Group:
		return x.d.Group < y.d.Group
	case x.d.Region != y.d.Region:
		return x.d.Region < y.d.Region
	}
	if a, b := x.dstOff(), y.dstOff(); a != b {
		return a < b
	}
	if x.d.Layer != y.d.Layer {
		return x.d.Layer < y.d.Layer
	}
	return cmp.Or(cmp.Compare(x.d.Part, y.d.Part), cmp.Compare(x.head, y.head)) < 0
}
