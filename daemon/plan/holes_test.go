package plan_test

import (
	"runtime"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
)

// TestManyHoles: a plan of half a million pieces between holes takes as much memory to make as it keeps, and no more. It keeps its spans, of 24
// bytes, and the runs that are missing, of 12.
func TestManyHoles(t *testing.T) {
	const n = 1 << 20
	l, err := layout.New([]layout.View{{
		Region: 1, NumBlocks: 2 * n, BlockStride: 1, TokenStride: 1, HeadStride: 1, ContentBytes: 1, Kind: layout.Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv",
	}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	blocks := func(step int, hole func(i int) bool) []layout.BlockList {
		ids := make([]uint32, n)
		for i := range ids {
			if ids[i] = uint32(step * i); hole(i) {
				ids[i] = layout.NoBlock
			}
		}
		return []layout.BlockList{{NTokens: n, IDs: ids}}
	}
	all, odd := func(int) bool { return false }, func(i int) bool { return i%2 == 1 }
	for name, tc := range map[string]struct {
		src, dst []layout.BlockList
		missing  int
		keeps    int
	}{
		"at the source":      {blocks(1, odd), blocks(2, all), n / 2, n / 2 * (24 + 12)},
		"at the destination": {blocks(1, all), blocks(2, odd), 0, n / 2 * 24},
		"at both":            {blocks(1, odd), blocks(2, odd), 0, n / 2 * 24},
		"all of it":          {blocks(1, func(int) bool { return true }), blocks(1, all), 1, 12},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p, err := plan.New(plan.Request{Producer: []plan.Rank{{Layout: l, Blocks: tc.src}}, Consumer: []plan.Rank{{Layout: l, Blocks: tc.dst}}})
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Missing()) != tc.missing || p.Bytes() != uint64(n/2) && name != "all of it" {
			t.Errorf("%s: %d bytes, %d runs are missing", name, p.Bytes(), len(p.Missing()))
		}
		const more = 512 << 10 // marks, and what the allocator rounds up
		if made := after.TotalAlloc - before.TotalAlloc; p.Size() > tc.keeps+more || made > uint64(tc.keeps+more) {
			t.Errorf("%s: %d bytes were allocated for a plan that keeps %d, want about %d", name, made, p.Size(), tc.keeps)
		}
	}
}
