package plan_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
)

// tensor returns layers of one part, each a tensor of its own, or all in one block.
func tensor(tb testing.TB, layers, blocks int, blockBytes uint64, oneBlock bool) *layout.Layout {
	var views []layout.View
	for l := range layers {
		v := layout.View{Region: 1, NumBlocks: uint64(blocks), BlockStride: blockBytes, TokenStride: blockBytes / 16, HeadStride: blockBytes / 128,
			ContentBytes: blockBytes / 128, Layer: uint32(l), Kind: layout.Paged, BlockSize: 16, Heads: 8, TotalHeads: 8, Part: "kv"}
		v.Base = uint64(l) * uint64(blocks) * blockBytes
		if oneBlock {
			v.Base, v.BlockStride = uint64(l)*blockBytes, uint64(layers)*blockBytes
		}
		views = append(views, v)
	}
	l, err := layout.New(views, nil, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func blockList(ids []uint32) []layout.BlockList {
	return []layout.BlockList{{NTokens: uint32(len(ids) * 16), IDs: ids}}
}

func randomIDs(n, of int, seed uint64) []uint32 {
	ids := make([]uint32, n)
	for i, id := range rand.New(rand.NewPCG(seed, 0)).Perm(of)[:n] {
		ids[i] = uint32(id)
	}
	return ids
}

func ascendingIDs(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// BenchmarkDescribe is everything that is done per block id of a hand-over on one node's side: check, hold, plan, list
// all runs of one end.
func BenchmarkDescribe(b *testing.B) {
	const n = 262144
	l := tensor(b, 1, n, 65536, false)
	for _, kind := range []string{"merging", "random"} {
		src, dst := ascendingIDs(n), ascendingIDs(n)
		if kind == "random" {
			src, dst = randomIDs(n, n, 1), randomIDs(n, n, 2)
		}
		for _, end := range []string{"src", "pairs"} {
			b.Run(kind+"/"+end, func(b *testing.B) {
				holds := layout.NewHolds(l)
				var runs []plan.Run
				var pairs []plan.PairRun
				for b.Loop() {
					lists := blockList(src)
					if err := l.CheckBlocks(lists); err != nil {
						b.Fatal(err)
					}
					if _, err := holds.Acquire(lists, false); err != nil {
						b.Fatal(err)
					}
					p, err := plan.New(plan.Request{Producer: []plan.Rank{{Layout: l, Blocks: lists}}, Consumer: []plan.Rank{{Layout: l, Blocks: blockList(dst)}}, Whole: true})
					if err != nil {
						b.Fatal(err)
					}
					for i := range p.Slices() {
						if end == "src" {
							runs = p.Src(i, runs[:0])
						} else {
							pairs = p.Pairs(i, pairs[:0])
						}
					}
					holds.Release(lists, false)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/id")
			})
		}
	}
}

// BenchmarkRuns is the cost of a run when slices are taken one by one.
func BenchmarkRuns(b *testing.B) {
	for _, c := range []struct{ n, bytes int }{{16384, 65536}, {40960, 8192}} {
		l := tensor(b, 1, c.n, uint64(c.bytes), false)
		p, err := plan.New(plan.Request{
			Producer: []plan.Rank{{Layout: l, Blocks: blockList(randomIDs(c.n, c.n, 1))}},
			Consumer: []plan.Rank{{Layout: l, Blocks: blockList(randomIDs(c.n, c.n, 2))}}})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("%dx%d", c.n, c.bytes), func(b *testing.B) {
			var pairs []plan.PairRun
			n := 0
			for b.Loop() {
				for i := range p.Slices() {
					pairs = p.Pairs(i, pairs[:0])
					n += len(pairs)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/run")
			b.ReportAllocs()
		})
	}
}

// BenchmarkSmall is the plan and runs of one block.
func BenchmarkSmall(b *testing.B) {
	for _, layers := range []int{1, 32} {
		for _, one := range []bool{true, false} {
			l := tensor(b, layers, 64, 4096, one)
			src, dst := blockList([]uint32{3}), blockList([]uint32{7})
			b.Run(fmt.Sprintf("layers=%d/oneblock=%v", layers, one), func(b *testing.B) {
				b.ReportAllocs()
				var pairs []plan.PairRun
				for b.Loop() {
					if err := l.CheckBlocks(src); err != nil {
						b.Fatal(err)
					}
					p, err := plan.New(plan.Request{Producer: []plan.Rank{{Layout: l, Blocks: src}}, Consumer: []plan.Rank{{Layout: l, Blocks: dst}}})
					if err != nil {
						b.Fatal(err)
					}
					for i := range p.Slices() {
						pairs = p.Pairs(i, pairs[:0])
					}
				}
			})
		}
	}
}
