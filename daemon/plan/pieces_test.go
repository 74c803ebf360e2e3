package plan_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
)

// TestPieces: a plan says before anything moves into how many pieces its bytes fall.
func TestPieces(t *testing.T) {
	const blocks, tokens, heads = 64, 16, 8
	of := func(content uint64, headMajor bool) *layout.Layout {
		v := layout.View{
			Region: 1, NumBlocks: blocks, BlockStride: tokens * heads * content, TokenStride: heads * content, HeadStride: content, ContentBytes: content,
			Kind: layout.Paged, BlockSize: tokens, Heads: heads, TotalHeads: heads, Part: "kv",
		}
		if headMajor {
			v.TokenStride, v.HeadStride = content, tokens*content
		}
		l, err := layout.New([]layout.View{v}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	every := make([]uint32, 0, blocks/2) // none beside another
	for i := uint32(0); i < blocks; i += 2 {
		every = append(every, i)
	}
	for _, tc := range []struct {
		name     string
		src, dst *layout.Layout
	}{
		{"whole blocks", of(128, false), of(128, false)},
		{"another order", of(128, false), of(128, true)},
		{"another order of single bytes", of(1, false), of(1, true)},
	} {
		lists := []layout.BlockList{{NTokens: uint32(len(every)) * tokens, IDs: every}}
		p, err := plan.New(plan.Request{Producer: []plan.Rank{{Layout: tc.src, Blocks: lists}}, Consumer: []plan.Rank{{Layout: tc.dst, Blocks: lists}}})
		if err != nil {
			t.Fatal(err)
		}
		moved := 0
		for i := range p.Slices() {
			moved += len(p.Pairs(i, nil))
		}
		if got := p.Pieces(); got != uint64(moved) {
			t.Errorf("%s: %d pieces, and %d are moved", tc.name, got, moved)
		}
	}
}
