package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
)

// TestEveryRankHasTheBlocks that it is given, also where one list is for several ranks and another of them has more blocks.
func TestEveryRankHasTheBlocks(t *testing.T) {
	ranks := func(few int, id uint32) []plan.Rank {
		list := []layout.BlockList{{NTokens: 1, IDs: []uint32{id}}}
		out := make([]plan.Rank, 2)
		for i := range out {
			v := layout.View{Region: 1, NumBlocks: 8, BlockStride: 8, TokenStride: 8, HeadStride: 8, ContentBytes: 8, Layer: uint32(i), Kind: layout.Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv"}
			if i == few {
				v.NumBlocks = 4
			}
			out[i] = plan.Rank{Rank: uint32(i), Layout: only(t, v), Blocks: list}
		}
		return out
	}
	for few := range 2 {
		for _, r := range []struct {
			producer, consumer []plan.Rank
			say                string
		}{
			{ranks(few, 4), ranks(few, 3), "producer: blocks: group 0: id 4 at position 0; the group has 4 blocks"},
			{ranks(few, 3), ranks(few, 4), "consumer: blocks: group 0: id 4 at position 0; the group has 4 blocks"},
		} {
			if _, err := plan.New(plan.Request{Producer: r.producer, Consumer: r.consumer}); !errors.Is(err, plan.ErrInvalid) || !strings.Contains(err.Error(), r.say) {
				t.Errorf("rank %d has fewer blocks: error %v, want %q", few, err, r.say)
			}
		}
		if _, err := plan.New(plan.Request{Producer: ranks(few, 3), Consumer: ranks(few, 2)}); err != nil {
			t.Errorf("rank %d has fewer blocks: %v", few, err)
		}
	}
}
