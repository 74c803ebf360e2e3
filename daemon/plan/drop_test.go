package plan_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
)

// TestDropKeepsNothing of what a plan was made of, whether it could be made or not: the next one may come much later.
func TestDropKeepsNothing(t *testing.T) {
	var x plan.Planner
	view := layout.View{Region: 1, NumBlocks: 1000, BlockStride: 8, TokenStride: 8, HeadStride: 8, ContentBytes: 8, Kind: layout.Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv"}
	for _, wrong := range []bool{false, true} {
		var gone []weak.Pointer[uint32]
		// Of each rank. The last one has fewer groups than the others.
		blocks := func(groups uint32) (out []layout.BlockList) {
			for g := range groups {
				ids := ascendingIDs(500)
				gone = append(gone, weak.Make(&ids[0]))
				if wrong && g == 1 {
					ids[0] = 1000
				}
				out = append(out, layout.BlockList{Group: g, NTokens: 500, IDs: ids})
			}
			return out
		}
		func() {
			second := view
			second.Group, second.Base = 1, 8000
			both, err := layout.New([]layout.View{view, second}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = x.Plan(plan.Request{
				Producer: []plan.Rank{{Rank: 0, Layout: both, Blocks: blocks(2)}, {Rank: 1, Layout: only(t, view), Blocks: blocks(1)}},
				Consumer: []plan.Rank{{Layout: both, Blocks: blocks(2)}},
			})
			if wrong != (err != nil) {
				t.Fatal(err)
			}
			x.Drop()
		}()
		runtime.GC()
		for i := range gone {
			if gone[i].Value() != nil {
				t.Errorf("wrong request %v: the ids of list %d of %d stay", wrong, i, len(gone))
			}
		}
	}
	runtime.KeepAlive(&x)
}
