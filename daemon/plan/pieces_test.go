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
	two := func() *layout.Layout { // a whole block of both views is one piece
		const k, v = 1, 2 // bytes
		view := func(base, content uint64, part string) layout.View {
			return layout.View{
				Region: 1, Base: base, NumBlocks: blocks, BlockStride: tokens * heads * (k + v), TokenStride: content, HeadStride: tokens * content,
				ContentBytes: content, Kind: layout.Paged, BlockSize: tokens, Heads: heads, TotalHeads: heads, Part: part,
			}
		}
		l, err := layout.New([]layout.View{view(0, k, "k"), view(tokens*heads*k, v, "v")}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	every := make([]uint32, 0, blocks/2) // none beside another
	for i := uint32(0); i < blocks; i += 2 {
		every = append(every, i)
	}
	all := uint32(len(every)) * tokens
	for _, tc := range []struct {
		name        string
		src, dst    *layout.Layout
		first, stop uint32 // tokens
	}{
		{"whole blocks", of(128, false), of(128, false), 0, all},
		{"another order", of(128, false), of(128, true), 0, all},
		{"another order of single bytes", of(1, false), of(1, true), 0, all},
		{"whole blocks of two views", two(), two(), 0, all},
		{"a part of a block of two views", two(), two(), 3, 7},
		{"the end of a block of two views", two(), two(), 3, tokens},
		{"blocks of two views, the first and the last not whole", two(), two(), 3, all - 1},
	} {
		lists := []layout.BlockList{{FirstToken: tc.first, NTokens: tc.stop - tc.first, IDs: every[:(tc.stop+tokens-1)/tokens]}}
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

// TestSmall: single bytes move while others wait as long as a thousand of them are moved, and not as long as their bytes
// are few.
func TestSmall(t *testing.T) {
	const most, least = 32 << 10, 32 // bytes; and of a piece
	of := func(content uint64, n int) *plan.Plan {
		ids := make([]uint32, n)
		for i := range ids {
			ids[i] = uint32(2 * i) // none beside another
		}
		l, err := layout.New([]layout.View{{
			Region: 1, NumBlocks: uint64(2 * n), BlockStride: content, TokenStride: content, HeadStride: content, ContentBytes: content,
			Kind: layout.Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv",
		}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		rank := []plan.Rank{{Layout: l, Blocks: []layout.BlockList{{NTokens: uint32(n), IDs: ids}}}}
		p, err := plan.New(plan.Request{Producer: rank, Consumer: rank})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, tc := range []struct {
		content uint64
		n       int
		slice   uint64
		want    bool
	}{
		{most, 1, most, true}, {most + 1, 1, most + 1, false}, {least, most / least, most, true},
		{1, most / least, most / least, true}, {1, most/least + 1, most/least + 1, false}, {1, most, most, false},
		{1, most, most / least, true}, {1, most, most/least + 1, false}, {1, most, 0, true}, // slices of it
	} {
		if got := of(tc.content, tc.n).Small(tc.slice, most); got != tc.want {
			t.Errorf("%d bytes of %d blocks of %d: small is %v", tc.slice, tc.n, tc.content, got)
		}
	}
}
