package transporttest

import (
	"math/rand"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// Shape is a plan, and how much memory each rank of its sides needs.
type Shape struct {
	Name     string
	Plan     *plan.Plan
	Src, Dst []uint64
}

// Blocks is a shape of n whole blocks of size bytes, placed at random among twice as many, in slices of at most slice
// bytes (0: the planner's default). size must be a multiple of 128.
func Blocks(t testing.TB, n, size int, slice uint64) Shape {
	t.Helper()
	r := rand.New(rand.NewSource(int64(n)*31 + int64(size)))
	g := geometry{layers: 1, blocks: 2 * n, tokens: 16, heads: 8, content: uint64(size / 128), total: 8, pad: pad}
	return blocks(t, r, g, n, slice)
}

// Bytes is a shape of n blocks of a single byte, none beside another: no plan has more runs for its size.
func Bytes(t testing.TB, n int) Shape {
	t.Helper()
	r := rand.New(rand.NewSource(int64(n)))
	return blocks(t, r, geometry{layers: 1, blocks: 2 * n, tokens: 1, heads: 1, content: 1, total: 1, pad: 1}, n, 0)
}

func blocks(t testing.TB, r *rand.Rand, g geometry, n int, slice uint64) Shape {
	t.Helper()
	return shape(t, "blocks", slice, false,
		[]side{{g, list(r, g, 0, n*g.tokens)}}, []side{{g, list(r, g, 0, n*g.tokens)}})
}

// geometry is a rank's layout.
type geometry struct {
	layers, blocks, tokens, first, heads, total int
	content                                     uint64
	hnd                                         bool // head-major: all tokens of a head lie together
	opaque                                      bool
	pad                                         uint64 // bytes between two blocks
}

func (g geometry) blockBytes() uint64 {
	if g.opaque {
		return g.content
	}
	return uint64(g.tokens) * uint64(g.heads) * g.content
}

func (g geometry) layerBytes() uint64 { return uint64(g.blocks) * (g.blockBytes() + g.pad) }

// pad is the gap between two blocks of the shapes. Nothing may be written there.
const pad = 64

func (g geometry) layout(t testing.TB) *layout.Layout {
	t.Helper()
	var views []layout.View
	for l := range g.layers {
		v := layout.View{
			Region: 1, Base: uint64(l) * g.layerBytes(), NumBlocks: uint64(g.blocks), BlockStride: g.blockBytes() + g.pad,
			ContentBytes: g.content, Layer: uint32(l), Kind: layout.Paged, BlockSize: uint32(g.tokens), Part: "kv",
			FirstHead: uint32(g.first), Heads: uint32(g.heads), TotalHeads: uint32(g.total),
			TokenStride: uint64(g.heads) * g.content, HeadStride: g.content,
		}
		if g.hnd {
			v.TokenStride, v.HeadStride = g.content, uint64(g.tokens)*g.content
		}
		if g.opaque {
			v.Kind, v.TokenStride, v.HeadStride = layout.Opaque, 0, 0
		}
		views = append(views, v)
	}
	l, err := layout.New(views, []layout.Field{{Key: "model", Value: "test"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// side is one rank and its blocks.
type side struct {
	geometry
	blocks layout.BlockList
}

// list covers n tokens, from token first on, with random blocks.
func list(r *rand.Rand, g geometry, first, n int) layout.BlockList {
	count := (first+n+g.tokens-1)/g.tokens - first/g.tokens
	ids := make([]uint32, count)
	for i, id := range r.Perm(g.blocks)[:count] {
		ids[i] = uint32(id)
	}
	return layout.BlockList{FirstToken: uint32(first), NTokens: uint32(n), IDs: ids}
}

func shape(t testing.TB, name string, slice uint64, layered bool, src, dst []side) Shape {
	t.Helper()
	s := Shape{Name: name}
	ranks := func(sides []side) (out []plan.Rank, sizes []uint64) {
		for i, one := range sides {
			out = append(out, plan.Rank{Rank: uint32(i), Layout: one.layout(t), Blocks: []layout.BlockList{one.blocks}})
			sizes = append(sizes, one.layerBytes()*uint64(one.layers))
		}
		return out, sizes
	}
	req := plan.Request{Layered: layered, Whole: true, SliceBytes: slice}
	req.Producer, s.Src = ranks(src)
	req.Consumer, s.Dst = ranks(dst)
	p, err := plan.New(req)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	s.Plan = p
	return s
}

// Shapes are the kinds of plans: whole blocks, strided ones, several ranks, ragged edges, one tiny slice.
func Shapes(t testing.TB) []Shape {
	t.Helper()
	r := rand.New(rand.NewSource(7))
	big := geometry{layers: 1, blocks: 90, tokens: 16, heads: 8, total: 8, content: 512, pad: pad}
	nhd := geometry{layers: 1, blocks: 130, tokens: 16, heads: 8, total: 8, content: 128, pad: pad}
	hnd, left, right := nhd, nhd, nhd
	hnd.hnd = true
	left.heads, right.heads, right.first = 4, 4, 4
	wide := nhd
	wide.tokens, wide.blocks = 32, 70
	deep := big
	deep.layers, deep.blocks = 5, 20
	state := geometry{layers: 2, blocks: 12, tokens: 1, heads: 1, total: 1, content: 100003, opaque: true, pad: pad}
	long := geometry{layers: 1, blocks: 3, tokens: 4096, heads: 8, total: 8, content: 64, pad: pad}
	one := big
	single := Bytes(t, 5*transport.AtATime+3)
	single.Name = "single bytes"
	return []Shape{
		shape(t, "whole blocks of 64 KiB", 0, false, []side{{big, list(r, big, 0, 640)}}, []side{{big, list(r, big, 0, 640)}}),
		shape(t, "a slice that ends within a block", 100001, false, []side{{big, list(r, big, 0, 640)}}, []side{{big, list(r, big, 0, 640)}}),
		shape(t, "tokens inside, then heads", 0, false, []side{{nhd, list(r, nhd, 0, 1600)}}, []side{{hnd, list(r, hnd, 0, 1600)}}),
		shape(t, "one rank to two", 0, false, []side{{nhd, list(r, nhd, 0, 1600)}},
			[]side{{left, list(r, left, 0, 1600)}, {right, list(r, right, 0, 1600)}}),
		shape(t, "tokens that begin and end within blocks", 70000, false, []side{{nhd, list(r, nhd, 0, 1600)}}, []side{{wide, list(r, wide, 21, 1234)}}),
		shape(t, "layer by layer", 200000, true, []side{{deep, list(r, deep, 0, 160)}}, []side{{deep, list(r, deep, 0, 160)}}),
		shape(t, "opaque blocks", 0, false, []side{{state, list(r, state, 0, 7)}}, []side{{state, list(r, state, 0, 7)}}),
		shape(t, "long runs", 8<<20, false, []side{{long, list(r, long, 0, 3*4096)}}, []side{{long, list(r, long, 0, 3*4096)}}),
		single,
		shape(t, "one small block", 0, false, []side{{one, list(r, one, 3, 1)}}, []side{{one, list(r, one, 3, 1)}}),
	}
}
