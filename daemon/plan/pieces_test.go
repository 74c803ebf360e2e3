package plan_test

import (
	"slices"
	"testing"
	"time"

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
	holes := slices.Clone(every) // also where it begins and ends
	for _, i := range []int{0, 3, 4, len(holes) - 1} {
		holes[i] = layout.NoBlock
	}
	within := slices.Clone(every)
	within[3] = layout.NoBlock
	for _, tc := range []struct {
		name        string
		src, dst    *layout.Layout
		first, stop uint32 // tokens
		has         []uint32
	}{
		{"whole blocks", of(128, false), of(128, false), 0, all, every},
		{"another order", of(128, false), of(128, true), 0, all, every},
		{"another order of single bytes", of(1, false), of(1, true), 0, all, every},
		{"whole blocks of two views", two(), two(), 0, all, every},
		{"a part of a block of two views", two(), two(), 3, 7, every},
		{"the beginning of a block of two views", two(), two(), 0, 7, every},
		{"the end of a block of two views", two(), two(), 3, tokens, every},
		{"blocks of two views, the first and the last not whole", two(), two(), 3, all - 1, every},
		{"the same with a hole", two(), two(), 3, all - 1, within},
		{"the same without those two", two(), two(), 3, all - 1, holes},
	} {
		lists := []layout.BlockList{{FirstToken: tc.first, NTokens: tc.stop - tc.first, IDs: every[:(tc.stop+tokens-1)/tokens]}}
		given := []layout.BlockList{{FirstToken: tc.first, NTokens: tc.stop - tc.first, IDs: tc.has[:len(lists[0].IDs)]}}
		p, err := plan.New(plan.Request{Producer: []plan.Rank{{Layout: tc.src, Blocks: given}}, Consumer: []plan.Rank{{Layout: tc.dst, Blocks: lists}}})
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

// TestJudgingASliceTakesNoTime: everybody waits meanwhile, and a plan may have as many slices as it has views, each of which is judged.
func TestJudgingASliceTakesNoTime(t *testing.T) {
	took := func(layers int) time.Duration {
		l := wide(t, layers)
		p, err := plan.New(plan.Request{Producer: side(1, l, false), Consumer: side(1, l, false), Layered: true})
		if err != nil || p.Slices() != layers {
			t.Fatalf("%d slices, want %d: %v", p.Slices(), layers, err)
		}
		return leastOf10(func() {
			for range 100 {
				p.Small(8, 64)
			}
		})
	}
	if one, many := took(1), took(layout.MaxViews); many > 50*one {
		t.Errorf("it takes %v where there is one slice, and %v where there are %d", one, many, layout.MaxViews)
	}
}

// TestViewsAndHolesDoNotMultiply: where both are many, a plan takes about as long to make, and to count the pieces of, as where one is.
func TestViewsAndHolesDoNotMultiply(t *testing.T) {
	const blocks, tokens = 1 << 16, 4
	every, all := make([]uint32, blocks), ascendingIDs(blocks) // every other one is missing
	for i := range every {
		every[i] = layout.NoBlock
		if i%2 == 0 {
			every[i] = uint32(i)
		}
	}
	took := func(pairs int) time.Duration { // of views, one behind the other, of which a whole block is one piece
		var views []layout.View
		for i := range uint64(pairs) {
			v := layout.View{
				Region: 1, Base: i * 32, NumBlocks: blocks, BlockStride: uint64(pairs) * 32, TokenStride: 1, HeadStride: 1, ContentBytes: 1,
				Layer: uint32(i), Kind: layout.Paged, BlockSize: tokens, Heads: 1, TotalHeads: 1, Part: "k",
			}
			w := v
			w.Base, w.TokenStride, w.HeadStride, w.ContentBytes, w.Part = v.Base+tokens, 2, 2, 2, "v"
			views = append(views, v, w)
		}
		l, err := layout.New(views, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		rank := func(ids []uint32) []plan.Rank {
			return []plan.Rank{{Layout: l, Blocks: []layout.BlockList{{NTokens: tokens * blocks, IDs: ids}}}}
		}
		return leastOf10(func() {
			p, err := plan.New(plan.Request{Producer: rank(every), Consumer: rank(all)})
			if err != nil || p.Pieces() != uint64(pairs)*blocks/2 {
				t.Fatalf("%d pieces: %v", p.Pieces(), err)
			}
		})
	}
	if one, many := took(1), took(512); many > 10*one {
		t.Errorf("%v with one pair of views, and %v with 512", one, many)
	}
}

// leastOf10 is how long do takes, at the best of ten times: what else the machine does takes its time, too.
func leastOf10(do func()) (least time.Duration) {
	for run := range 10 {
		start := time.Now()
		do()
		if d := time.Since(start); run == 0 || d < least {
			least = d
		}
	}
	return least
}
