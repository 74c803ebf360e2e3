package plan_test

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
)

func TestPlanMovesWhatTheNaiveModelMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.fill()
		want := w.expect()
		req := plan.Request{
			Producer: w.producer.planRanks(), Consumer: w.consumer.planRanks(),
			Layered:    rapid.Bool().Draw(t, "layered"),
			SliceBytes: uint64(rapid.SampledFrom([]int{0, 1, 2, 3, 7, 16, 64, 200}).Draw(t, "slice bytes")),
		}
		checkWhole(t, req, want)
		p, err := plan.New(req)
		if want.nothing || want.clash {
			if !errors.Is(err, plan.ErrIncompatible) {
				t.Fatalf("nothing in common (%v), or views that clash (%v), but New says %v\n%v", want.nothing, want.clash, err, w)
			}
			return
		}
		if err != nil {
			t.Fatalf("New: %v\n%v", err, w)
		}
		if p.Bytes() != want.bytes || !maps.Equal(p.RankBytes(), want.rankBytes) {
			t.Fatalf("%d bytes %v, want %d %v\n%v", p.Bytes(), p.RankBytes(), want.bytes, want.rankBytes, w)
		}
		if got := singles(p.Missing()); !slices.Equal(got, want.missing) {
			t.Fatalf("missing %v, want %v\n%v", p.Missing(), want.missing, w)
		}
		order := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0)).Perm(p.Slices())
		byPairs, byStream := w.reset(), w.reset()
		for _, i := range order {
			w.movePairs(t, p, i, byPairs)
			w.moveStream(t, p, i, byStream)
		}
		compare(t, w, "pairs", byPairs, want)
		compare(t, w, "stream", byStream, want)
		checkLayers(t, w, p, req.Layered)
		checkOther(t, w, p, req)
	})
}

func checkWhole(t *rapid.T, req plan.Request, want *expected) {
	req.Whole = true
	_, err := plan.New(req)
	if refused := want.uncovered || want.nothing || want.clash; refused != errors.Is(err, plan.ErrIncompatible) {
		t.Fatalf("whole plan: error %v, but uncovered is %v", err, refused)
	}
}

func singles(runs []layout.Run) []layout.Run {
	var out []layout.Run
	for _, r := range runs {
		for i := range r.Count {
			out = append(out, layout.Run{Group: r.Group, First: r.First + i, Count: 1})
		}
	}
	return out
}

func (e *engine) memory(id uint32) map[layout.RegionID][]byte {
	return e.ranks[slices.IndexFunc(e.ranks, func(r *rank) bool { return r.id == id })].mem
}

func (w *world) movePairs(t *rapid.T, p *plan.Plan, i int, dst map[uint32]map[layout.RegionID][]byte) {
	s := p.Slice(i)
	pairs := p.Pairs(i, nil)
	var total uint64
	for k, r := range pairs {
		total += r.Len
		if r.SrcRank != s.SrcRank || r.DstRank != s.DstRank {
			t.Fatalf("slice %d is %+v, its run %+v", i, s, r)
		}
		if k > 0 {
			if q := pairs[k-1]; q.SrcRegion == r.SrcRegion && q.DstRegion == r.DstRegion && q.SrcOff+q.Len == r.SrcOff && q.DstOff+q.Len == r.DstOff {
				t.Fatalf("slice %d: %+v and %+v are one run", i, q, r)
			}
		}
		copy(dst[r.DstRank][r.DstRegion][r.DstOff:r.DstOff+r.Len], w.producer.memory(r.SrcRank)[r.SrcRegion][r.SrcOff:r.SrcOff+r.Len])
	}
	if total != s.Bytes || total == 0 {
		t.Fatalf("slice %d of %d bytes has pairs of %d", i, s.Bytes, total)
	}
}

// moveStream gathers the slice and scatters it, as two daemons do.
func (w *world) moveStream(t *rapid.T, p *plan.Plan, i int, dst map[uint32]map[layout.RegionID][]byte) {
	s := p.Slice(i)
	var stream []byte
	src := p.Src(i, nil)
	checkRuns(t, src, s.SrcRank)
	for _, r := range src {
		stream = append(stream, w.producer.memory(r.Rank)[r.Region][r.Off:r.Off+r.Len]...)
	}
	if uint64(len(stream)) != s.Bytes {
		t.Fatalf("slice %d of %d bytes gathers %d", i, s.Bytes, len(stream))
	}
	into := p.Dst(i, nil)
	checkRuns(t, into, s.DstRank)
	first := into[0]
	first.Len = 1
	if got := p.DstFirst(i, nil); len(got) != 1 || got[0] != first {
		t.Fatalf("slice %d begins at %v, want %v", i, got, first)
	}
	for _, r := range into {
		if uint64(len(stream)) < r.Len {
			t.Fatalf("slice %d of %d bytes scatters more", i, s.Bytes)
		}
		copy(dst[r.Rank][r.Region][r.Off:r.Off+r.Len], stream)
		stream = stream[r.Len:]
	}
	if len(stream) != 0 {
		t.Fatalf("slice %d: %d bytes are not scattered", i, len(stream))
	}
}

func checkRuns(t *rapid.T, runs []plan.Run, rank uint32) {
	for k, r := range runs {
		if r.Rank != rank {
			t.Fatalf("run %+v is not of rank %d", r, rank)
		}
		if k > 0 && runs[k-1].Region == r.Region && runs[k-1].Off+runs[k-1].Len == r.Off {
			t.Fatalf("%+v and %+v are one run", runs[k-1], r)
		}
	}
}

func compare(t *rapid.T, w *world, how string, got map[uint32]map[layout.RegionID][]byte, want *expected) {
	for rank, regions := range want.mem {
		for region, mem := range regions {
			if bytes.Equal(got[rank][region], mem) {
				continue
			}
			for i := range mem {
				if got[rank][region][i] != mem[i] {
					t.Fatalf("%s: rank %d region %d byte %d is %d, want %d\n%v", how, rank, region, i, got[rank][region][i], mem[i], w)
				}
			}
		}
	}
}

// checkLayers says whether every run of a layered plan lies in the layer that its slice and the marks name.
func checkLayers(t *rapid.T, w *world, p *plan.Plan, layered bool) {
	marks := p.Marks()
	if !layered {
		if marks != nil {
			t.Fatalf("marks %v of a plan that is not layered", marks)
		}
		return
	}
	var layers []uint32
	for _, r := range w.consumer.ranks {
		layers = append(layers, r.layout.Layers()...)
	}
	slices.Sort(layers)
	layers = slices.Compact(layers)
	last := uint32(0)
	layerMaps := map[uint32]map[layout.RegionID][]uint64{}
	for _, r := range w.producer.ranks {
		layerMaps[r.id] = r.layerMap()
	}
	for i := range p.Slices() {
		s := p.Slice(i)
		k := len(marks) - 1
		for marks[k].First > uint32(i) {
			k--
		}
		if m := marks[k]; m.SrcRank != s.SrcRank || m.SrcLayer != s.SrcLayer || m.DstLayer != s.DstLayer {
			t.Fatalf("slice %d is %+v, its mark %+v", i, s, m)
		}
		if s.DstLayer < last {
			t.Fatalf("slice %d goes back to layer ordinal %d from %d", i, s.DstLayer, last)
		}
		last = s.DstLayer
		src := w.producer.ranks[slices.IndexFunc(w.producer.ranks, func(r *rank) bool { return r.id == s.SrcRank })]
		if a, b := layers[s.DstLayer], src.layout.Layers()[s.SrcLayer]; a != b {
			t.Fatalf("slice %d writes layer %d and reads layer %d", i, a, b)
		}
		layerOf := layerMaps[s.SrcRank]
		for _, r := range p.Pairs(i, nil) {
			for _, l := range layerOf[r.SrcRegion][r.SrcOff : r.SrcOff+r.Len] {
				if l&(1<<layers[s.DstLayer]) == 0 {
					t.Fatalf("slice %d of layer %d reads %+v, which has bytes of the layers %b", i, layers[s.DstLayer], r, l)
				}
			}
		}
	}
}

// layerMap says which layers each byte of the rank's listed blocks belongs to, a bit for each.
func (r *rank) layerMap() map[layout.RegionID][]uint64 {
	out := map[layout.RegionID][]uint64{}
	for region, mem := range r.mem {
		out[region] = make([]uint64, len(mem))
	}
	for _, e := range r.elements() {
		for i := range e.view.ContentBytes {
			out[e.view.Region][e.off+i] |= 1 << e.view.Layer
		}
	}
	return out
}

// checkOther derives the plan as the other daemon does: from layouts that travelled and ranks in another order.
func checkOther(t *rapid.T, w *world, p *plan.Plan, req plan.Request) {
	again := func(ranks []plan.Rank) []plan.Rank {
		out := slices.Clone(ranks)
		slices.Reverse(out)
		for i := range out {
			l, err := layout.Decode(out[i].Layout.Encode())
			if err != nil {
				t.Fatal(err)
			}
			blocks := slices.Clone(out[i].Blocks)
			for k := range blocks {
				if blocks[k].IDs, err = layout.DecodeIDs(layout.AppendIDs(nil, blocks[k].IDs), len(blocks[k].IDs)); err != nil {
					t.Fatal(err)
				}
			}
			slices.Reverse(blocks)
			out[i].Layout, out[i].Blocks = l, blocks
		}
		return out
	}
	req.Producer, req.Consumer = again(req.Producer), again(req.Consumer)
	q, err := plan.New(req)
	if err != nil || q.Slices() != p.Slices() {
		t.Fatalf("the other daemon has %v", err)
	}
	for i := range p.Slices() {
		if p.Slice(i) != q.Slice(i) || !slices.Equal(p.Pairs(i, nil), q.Pairs(i, nil)) ||
			!slices.Equal(p.Src(i, nil), q.Src(i, nil)) || !slices.Equal(p.Dst(i, nil), q.Dst(i, nil)) {
			t.Fatalf("slice %d differs between the daemons\n%v", i, w)
		}
	}
}

// TestRunsAreAppended: what is in the caller's slice already stays, also where a slice continues the one before.
func TestRunsAreAppended(t *testing.T) {
	l := tensor(t, 1, 8, 4096, false)
	lists := blockList(ascendingIDs(8))
	p, err := plan.New(plan.Request{SliceBytes: 4096, Producer: []plan.Rank{{Layout: l, Blocks: lists}}, Consumer: []plan.Rank{{Layout: l, Blocks: lists}}})
	if err != nil {
		t.Fatal(err)
	}
	var src, dst []plan.Run
	var pairs []plan.PairRun
	for i := range p.Slices() {
		src, dst, pairs = p.Src(i, src), p.Dst(i, dst), p.Pairs(i, pairs)
	}
	if len(src) != 8 || len(dst) != 8 || len(pairs) != 8 {
		t.Errorf("8 slices of one run each give %d, %d and %d runs", len(src), len(dst), len(pairs))
	}
	if n := testing.AllocsPerRun(100, func() { src, dst, pairs = p.Src(3, src[:0]), p.Dst(3, dst[:0]), p.Pairs(3, pairs[:0]) }); n != 0 {
		t.Errorf("%v allocations for runs into slices that have room", n)
	}
	if n := testing.AllocsPerRun(100, func() { dst = p.DstFirst(3, dst[:0]) }); n != 0 {
		t.Errorf("%v allocations for the first byte", n)
	}
}

// TestAdjacentBlocks: lists that are known to be runs make the very runs of bytes that the same ids make.
func TestAdjacentBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]uint64{1, 2, 4, 5}).Draw(t, "slice")*8 + 1
		req := plan.Request{Producer: []plan.Rank{drawAdjacent(t, "producer")}, Consumer: []plan.Rank{drawAdjacent(t, "consumer")}, SliceBytes: size}
		p, err := plan.New(req)
		if err != nil {
			t.Fatal(err)
		}
		req.Producer[0].Blocks = []layout.BlockList{unknown(req.Producer[0].Blocks[0])}
		req.Consumer[0].Blocks = []layout.BlockList{unknown(req.Consumer[0].Blocks[0])}
		q, err := plan.New(req)
		if err != nil {
			t.Fatal(err)
		}
		if p.Slices() != q.Slices() {
			t.Fatalf("%d slices, want %d", p.Slices(), q.Slices())
		}
		for i := range p.Slices() {
			if got, want := p.Src(i, nil), q.Src(i, nil); !slices.Equal(got, want) {
				t.Fatalf("slice %d: source %v, want %v", i, got, want)
			}
			if got, want := p.Dst(i, nil), q.Dst(i, nil); !slices.Equal(got, want) {
				t.Fatalf("slice %d: destination %v, want %v", i, got, want)
			}
			if got, want := p.Pairs(i, nil), q.Pairs(i, nil); !slices.Equal(got, want) {
				t.Fatalf("slice %d: pairs %v, want %v", i, got, want)
			}
		}
	})
}

// unknown is the same list, of which nothing is known.
func unknown(b layout.BlockList) layout.BlockList {
	b.IDs = slices.Clone(b.IDs)
	return b
}

// drawAdjacent draws a rank with one view and a run of its blocks: elements of a token or a block follow each other, or have gaps.
func drawAdjacent(t *rapid.T, name string) plan.Rank {
	const heads, content = 2, 3
	gap := func(what string) uint64 { return uint64(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, name+what)) }
	v := layout.View{Region: 1, NumBlocks: 40, ContentBytes: content, Kind: layout.Paged, Heads: heads, TotalHeads: heads, Part: "kv"}
	size := rapid.SampledFrom([]int{1, 2, 3, 4}).Draw(t, name+" block size")
	v.BlockSize = uint32(size)
	if rapid.Bool().Draw(t, name+" heads outside") {
		v.TokenStride = content + gap(" between tokens")
		v.HeadStride = uint64(size)*v.TokenStride + gap(" between heads")
		v.BlockStride = heads*v.HeadStride + gap(" between blocks")
	} else {
		v.HeadStride = content + gap(" between heads")
		v.TokenStride = heads*v.HeadStride + gap(" between tokens")
		v.BlockStride = uint64(size)*v.TokenStride + gap(" between blocks")
	}
	l, err := layout.New([]layout.View{v}, nil, func(layout.RegionID) (uint64, bool) { return v.NumBlocks * v.BlockStride, true })
	if err != nil {
		t.Fatal(err)
	}
	const first, n = 3, 17 // tokens
	count := (first+n+size-1)/size - first/size
	at := rapid.IntRange(0, int(v.NumBlocks)-count).Draw(t, name+" first block")
	return plan.Rank{Layout: l, Blocks: []layout.BlockList{{FirstToken: first, NTokens: n, IDs: layout.Adjacent(uint32(at), uint32(count))}}}
}
