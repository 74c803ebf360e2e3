package plan_test

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// shape is what both sides have in common: a group of the model.
type shape struct {
	group  uint32
	kind   layout.Kind
	layers []uint32
	parts  []partShape
}

type partShape struct {
	name           string
	content, heads uint64 // bytes per element, heads of the model
}

// world is one hand-over to plan.
type world struct {
	shapes             []shape
	producer, consumer *engine
}

// engine is one side: its ranks, their lists and memory, and the sequence positions of the lists.
type engine struct {
	ranks []*rank
}

type rank struct {
	id     uint32
	layout *layout.Layout
	blocks []layout.BlockList
	mem    map[layout.RegionID][]byte
}

func flip(t *rapid.T, what string, oneIn int) bool {
	return rapid.IntRange(1, oneIn).Draw(t, what) == oneIn
}

func drawWorld(t *rapid.T) *world {
	w := &world{}
	layer := uint32(rapid.IntRange(0, 3).Draw(t, "layer0"))
	for g := range rapid.IntRange(1, 3).Draw(t, "groups") {
		s := shape{group: uint32(g), kind: layout.Paged}
		if flip(t, "opaque", 4) {
			s.kind = layout.Opaque
		}
		for range rapid.IntRange(1, 4).Draw(t, "layers") {
			s.layers = append(s.layers, layer)
			layer += uint32(rapid.SampledFrom([]int{1, 1, 1, 3}).Draw(t, "step"))
		}
		heads := uint64(rapid.SampledFrom([]int{1, 2, 3, 4, 6}).Draw(t, "heads"))
		content := uint64(rapid.IntRange(1, 5).Draw(t, "content"))
		switch rapid.IntRange(0, 2).Draw(t, "parts") {
		case 0:
			s.parts = []partShape{{"kv", content, heads}}
		case 1:
			s.parts = []partShape{{"k", content, heads}, {"v", content, heads}}
		default:
			s.parts = []partShape{{"index", 3, 1}, {"kv", content, heads}}
		}
		w.shapes = append(w.shapes, s)
	}
	w.producer = drawEngine(t, w.shapes, "producer")
	if flip(t, "alike", 3) {
		w.consumer = w.producer.another()
	} else {
		w.consumer = drawEngine(t, w.shapes, "consumer")
	}
	if n := len(w.producer.ranks); n > 1 && flip(t, "rank elsewhere", 4) {
		gone := rapid.IntRange(0, n-1).Draw(t, "which")
		w.producer.ranks = slices.Delete(w.producer.ranks, gone, gone+1)
	}
	w.drawLists(t)
	return w
}

// geometry is how one side cuts a group into blocks.
type geometry struct {
	size, blocks uint64
}

func drawEngine(t *rapid.T, shapes []shape, name string) *engine {
	tp := rapid.SampledFrom([]int{1, 1, 2, 3, 4}).Draw(t, name+" tp")
	pp := rapid.SampledFrom([]int{1, 1, 2}).Draw(t, name+" pp")
	geo := make([]geometry, len(shapes))
	for i, s := range shapes {
		geo[i] = geometry{uint64(rapid.IntRange(1, 5).Draw(t, "block size")), uint64(rapid.IntRange(24, 40).Draw(t, "blocks"))}
		if s.kind == layout.Opaque {
			geo[i].size = 1
		}
	}
	overlay, cut := flip(t, name+" overlay", 4), flip(t, name+" cut heads", 4)
	shared := make([]int, len(shapes)) // how many of its first layers lie in one place
	for i, s := range shapes {
		if flip(t, name+" shared", 4) {
			shared[i] = rapid.IntRange(1, len(s.layers)).Draw(t, "layers that share")
		}
	}
	e := &engine{}
	for stage := range pp {
		for r := range tp {
			id := uint32(r + stage*tp)
			views := make([][]layout.View, len(shapes))
			for i, s := range shapes {
				views[i] = s.views(geo[i], r, tp, stage, pp, cut)
			}
			e.ranks = append(e.ranks, drawRank(t, id, views, overlay, func(group int, v *layout.View) bool {
				return slices.Contains(shapes[group].layers[:shared[group]], v.Layer)
			}))
		}
	}
	return e
}

// another returns an engine of the same layouts.
func (e *engine) another() *engine {
	o := &engine{}
	for _, r := range e.ranks {
		mem := map[layout.RegionID][]byte{}
		for region, m := range r.mem {
			mem[region] = make([]byte, len(m))
		}
		o.ranks = append(o.ranks, &rank{id: r.id, layout: r.layout, mem: mem})
	}
	return o
}

// views returns the views of a rank, without their places in memory. Stages hold every pp-th layer; ranks hold a range of
// heads, or share one; cut ranges are two views.
func (s *shape) views(geo geometry, r, tp, stage, pp int, cut bool) []layout.View {
	var views []layout.View
	for i, layer := range s.layers {
		if i%pp != stage {
			continue
		}
		for _, p := range s.parts {
			v := layout.View{Layer: layer, Part: p.name, Group: s.group, Kind: s.kind, NumBlocks: geo.blocks, BlockSize: uint32(geo.size),
				ContentBytes: p.content, TotalHeads: uint32(p.heads)}
			first, end := r*int(p.heads)/tp, (r+1)*int(p.heads)/tp
			if end == first {
				end = first + 1
			}
			if s.kind == layout.Opaque {
				first, end = 0, int(p.heads)
			}
			v.FirstHead, v.Heads = uint32(first), uint32(end-first)
			if cut && s.kind == layout.Paged && v.Heads > 1 {
				v.Heads /= 2
				views = append(views, v)
				v.FirstHead, v.Heads = v.FirstHead+v.Heads, uint32(end)-v.FirstHead-v.Heads
			}
			views = append(views, v)
		}
	}
	return views
}

func drawRank(t *rapid.T, id uint32, groups [][]layout.View, overlay bool, shares func(group int, v *layout.View) bool) *rank {
	sizes := map[layout.RegionID]uint64{}
	region := layout.RegionID(1 + 16*id)
	var all []layout.View
	var blockStride, least uint64
	for group, views := range groups {
		if len(views) == 0 {
			continue
		}
		p := placer{t: t, views: views, base: sizes[region] + uint64(rapid.IntRange(0, 3).Draw(t, "gap")), inBlock: overlay}
		if overlay {
			p.base = 0
		}
		p.place(region)
		share(views, func(v *layout.View) bool { return shares(group, v) })
		all = append(all, views...)
		sizes[region] = max(sizes[region], p.end)
		blockStride, least = max(blockStride, views[0].BlockStride), max(least, views[0].NumBlocks)
		if !overlay && flip(t, "next region", 3) {
			region++
		}
	}
	if overlay {
		for i := range all {
			all[i].BlockStride = blockStride
		}
		sizes[region] = blockStride * least
	}
	if len(all) == 0 {
		all = []layout.View{{Region: region, NumBlocks: 1, ContentBytes: 1, Layer: 1000, Group: 40, Kind: layout.Opaque, Part: "none"}}
		sizes[region] = 1
	}
	all = rapid.Permutation(all).Draw(t, "view order")
	l, err := layout.New(all, nil, func(r layout.RegionID) (uint64, bool) { n, ok := sizes[r]; return n, ok })
	if err != nil {
		t.Fatalf("layout of rank %d: %v", id, err)
	}
	r := &rank{id: id, layout: l, mem: map[layout.RegionID][]byte{}}
	for region, n := range sizes {
		r.mem[region] = make([]byte, n)
	}
	return r
}

// share gives layers that share memory the place of the first of them, for each part and range of heads.
func share(views []layout.View, shares func(*layout.View) bool) {
	type heads struct {
		part  string
		first uint32
	}
	first := map[heads]*layout.View{}
	for i := range views {
		v := &views[i]
		k := heads{v.Part, v.FirstHead}
		switch f := first[k]; {
		case !shares(v):
		case f == nil:
			first[k] = v
		default:
			v.Base, v.BlockStride, v.TokenStride, v.HeadStride = f.Base, f.BlockStride, f.TokenStride, f.HeadStride
		}
	}
}

// drawLists gives both engines blocks for overlapping ranges of tokens.
func (w *world) drawLists(t *rapid.T) {
	for _, s := range w.shapes {
		if flip(t, "no list", 8) {
			continue
		}
		first := rapid.IntRange(0, 7).Draw(t, "first token")
		n := rapid.IntRange(0, 14).Draw(t, "tokens")
		if !flip(t, "nothing offered", 10) {
			w.producer.addList(t, s, first, n)
		}
		if !flip(t, "other range", 8) {
			cut := rapid.IntRange(0, n).Draw(t, "cut")
			first, n = first+cut, rapid.IntRange(0, n-cut).Draw(t, "fewer")
		} else {
			first, n = rapid.IntRange(0, 9).Draw(t, "first token"), rapid.IntRange(0, 14).Draw(t, "tokens")
		}
		w.consumer.addList(t, s, first, n)
	}
}

func (e *engine) addList(t *rapid.T, s shape, first, n int) {
	var g *layout.Group
	for _, r := range e.ranks {
		if g == nil {
			g = r.layout.Group(s.group)
		}
	}
	if g == nil {
		return
	}
	size := int(g.BlockSize)
	count := (first+n+size-1)/size - first/size
	holes := make([]bool, count)
	if flip(t, "with holes", 3) {
		for i := range holes {
			holes[i] = flip(t, "hole", 3)
		}
	}
	var shared []uint32
	own := flip(t, "own lists", 4)
	for i, r := range e.ranks {
		switch {
		case own:
			shared = drawIDs(t, []*rank{r}, g.NumBlocks, holes)
		case i == 0:
			shared = drawIDs(t, e.ranks, g.NumBlocks, holes)
		}
		r.blocks = append(r.blocks, layout.BlockList{Group: s.group, FirstToken: uint32(first), NTokens: uint32(n), IDs: shared})
	}
}

// drawIDs draws blocks that no other list of the ranks has, so that groups may lie over each other.
func drawIDs(t *rapid.T, ranks []*rank, blocks uint64, holes []bool) []uint32 {
	used := map[uint32]bool{}
	for _, r := range ranks {
		for _, b := range r.blocks {
			for _, id := range b.IDs {
				used[id] = true
			}
		}
	}
	free := make([]uint32, 0, blocks)
	for id := range uint32(blocks) {
		if !used[id] {
			free = append(free, id)
		}
	}
	if !flip(t, "ascending", 2) {
		free = rapid.Permutation(free).Draw(t, "ids")
	}
	if len(free) < len(holes) {
		t.Skip("too many blocks for the group")
	}
	ids := slices.Clone(free[:len(holes)])
	if n := len(ids); n > 0 && ids[n-1]-ids[0] == uint32(n-1) && slices.IsSorted(ids) && !slices.Contains(holes, true) && flip(t, "adjacent", 2) {
		return layout.Adjacent(ids[0], uint32(n))
	}
	for i, hole := range holes {
		if hole {
			ids[i] = layout.NoBlock
		}
	}
	return ids
}

func (w *world) String() string {
	s := ""
	for _, e := range []*engine{w.producer, w.consumer} {
		for _, r := range e.ranks {
			s += fmt.Sprintf("rank %d blocks %v\n", r.id, r.blocks)
			for _, v := range r.layout.Views() {
				s += fmt.Sprintf("  %+v\n", v)
			}
		}
	}
	return s
}
