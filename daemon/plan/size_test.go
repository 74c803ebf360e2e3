package plan_test

import (
	"runtime"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
)

// sized are requests whose plans are small or large for different reasons.
func sized(t *testing.T) map[string]func() plan.Request {
	const n = 8192
	one := tensor(t, 1, 2*n, 65536, false)
	separate := tensor(t, 160, 64, 65536, false)
	wide, err := layout.New([]layout.View{{
		Region: 1, NumBlocks: 1, BlockStride: 1 << 50, TokenStride: 4096, HeadStride: 512, ContentBytes: 512, Kind: layout.Paged, BlockSize: layout.MaxBlockSize,
		Heads: 8, TotalHeads: 8, Part: "kv",
	}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	scattered, holes, ascending := randomIDs(n, 2*n, 1), randomIDs(n, 2*n, 2), ascendingIDs(n)
	for i := 0; i < n; i += 2 {
		holes[i] = layout.NoBlock
	}
	of := func(src *layout.Layout, from []layout.BlockList, dst *layout.Layout, to []layout.BlockList) func() plan.Request {
		return func() plan.Request {
			return plan.Request{Producer: []plan.Rank{{Layout: src, Blocks: from}}, Consumer: []plan.Rank{{Layout: dst, Blocks: to}}}
		}
	}
	none := []layout.BlockList{{NTokens: layout.MaxBlockSize, IDs: []uint32{layout.NoBlock}}}
	ranks := func() plan.Request {
		var r plan.Request
		for i := range uint32(16) { // each has blocks of its own
			blocks := blockList([]uint32{i})
			r.Producer = append(r.Producer, plan.Rank{Rank: i, Layout: one, Blocks: blocks})
			r.Consumer = append(r.Consumer, plan.Rank{Rank: i, Layout: one, Blocks: blockList([]uint32{i})})
		}
		return r
	}
	layered := func() plan.Request {
		r := of(separate, blockList([]uint32{1}), separate, blockList([]uint32{2}))()
		r.Layered = true
		return r
	}
	return map[string]func() plan.Request{
		"one block": of(one, blockList([]uint32{1}), one, blockList([]uint32{2})),
		"views":     of(separate, blockList([]uint32{1}), separate, blockList([]uint32{2})),
		"layers":    layered,
		"missing":   of(wide, none, one, blockList(scattered)),
		"holes":     of(one, blockList(holes), one, blockList(ascending)),
		"ranks":     ranks,
	}
}

// TestSize: what a plan says that it keeps is what it keeps.
func TestSize(t *testing.T) {
	const n, itself = 64, 640
	for name, request := range sized(t) {
		t.Run(name, func(t *testing.T) {
			plans := make([]*plan.Plan, n)
			fill := func() (kept int) {
				var before, after runtime.MemStats
				clear(plans)
				runtime.GC()
				runtime.ReadMemStats(&before)
				for i := range plans {
					p, err := plan.New(request())
					if err != nil {
						t.Fatal(err)
					}
					plans[i] = p
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				return int(after.HeapAlloc) - int(before.HeapAlloc)
			}
			fill()
			kept, said := fill()/n, itself+plans[0].Size()
			if kept > said*5/4+128 || said > kept*5/4+128 {
				t.Errorf("a plan keeps %d bytes, and says %d", kept, said)
			}
			t.Logf("%d bytes, %d are said", kept, said)
			runtime.KeepAlive(plans)
		})
	}
}
