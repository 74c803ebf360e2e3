package transfer

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// twoGroups has group 0 with blocks of 4 tokens and the opaque group 1.
func twoGroups(t *testing.T) []RankLayout {
	l, err := layout.New([]layout.View{
		{Region: 1, NumBlocks: 100, BlockStride: 32, TokenStride: 8, HeadStride: 8, ContentBytes: 8, Kind: layout.Paged, BlockSize: 4, Heads: 1, TotalHeads: 1, Part: "kv"},
		{Region: 2, NumBlocks: 100, BlockStride: 64, ContentBytes: 64, Kind: layout.Opaque, Group: 1, Heads: 1, TotalHeads: 1, Part: "ssm"},
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return []RankLayout{{Layout: l}}
}

func paged(first, n uint32, ids ...uint32) layout.BlockList {
	return layout.BlockList{FirstToken: first, NTokens: n, IDs: ids}
}

func opaque(ids ...uint32) layout.BlockList { return layout.BlockList{Group: 1, IDs: ids} }

func TestClip(t *testing.T) {
	ranks := twoGroups(t)
	for _, tc := range []struct {
		name     string
		src, dst []layout.BlockList
		want     []layout.BlockList
	}{
		{"whole", []layout.BlockList{paged(0, 8, 1, 2)}, []layout.BlockList{paged(0, 8, 5, 6)}, []layout.BlockList{paged(0, 8, 5, 6)}},
		{"front", []layout.BlockList{paged(0, 4, 1)}, []layout.BlockList{paged(0, 12, 5, 6, 7)}, []layout.BlockList{paged(0, 4, 5)}},
		{"half a block", []layout.BlockList{paged(0, 6, 1, 2)}, []layout.BlockList{paged(0, 12, 5, 6, 7)}, []layout.BlockList{paged(0, 6, 5, 6)}},
		{"its other half", []layout.BlockList{paged(6, 6, 2, 3)}, []layout.BlockList{paged(0, 12, 5, 6, 7)}, []layout.BlockList{paged(6, 6, 6, 7)}},
		{"take begins later", []layout.BlockList{paged(0, 12, 1, 2, 3)}, []layout.BlockList{paged(5, 4, 6, 7)}, []layout.BlockList{paged(5, 4, 6, 7)}},
		{"apart", []layout.BlockList{paged(0, 4, 1)}, []layout.BlockList{paged(4, 4, 6)}, nil},
		{"group not in the segment", []layout.BlockList{paged(0, 4, 1)}, []layout.BlockList{opaque(9)}, nil},
		{"opaque stays whole", []layout.BlockList{opaque(1, 2)}, []layout.BlockList{opaque(8, 9)}, []layout.BlockList{opaque(8, 9)}},
		{"opaque list without blocks", []layout.BlockList{paged(0, 4, 1), opaque()}, []layout.BlockList{paged(0, 4, 5), opaque(8, 9)}, []layout.BlockList{paged(0, 4, 5)}},
		{"ids do not fit the tokens", []layout.BlockList{paged(0, 12, 1, 2, 3)}, []layout.BlockList{paged(0, 12, 5)}, nil},
		{"tokens overflow", []layout.BlockList{paged(0, 12, 1, 2, 3)}, []layout.BlockList{paged(1<<32-1, 9, 5)}, nil},
	} {
		if got := spansOf(tc.src, nil).clip(ranks, tc.dst); fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestClipToRanks: what one segment covers is the same, whether it is said once for all ranks or for each.
func TestClipToRanks(t *testing.T) {
	r := spansOf(nil, map[uint32][]layout.BlockList{0: {paged(0, 4, 1)}, 1: {paged(4, 4, 2)}})
	got := r.clip(twoGroups(t), []layout.BlockList{paged(0, 12, 5, 6, 7)})
	if want := []layout.BlockList{paged(0, 8, 5, 6)}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestUncovered(t *testing.T) {
	ranks := twoGroups(t)
	segs := []spans{spansOf([]layout.BlockList{paged(0, 6, 1, 2), opaque()}, nil), spansOf([]layout.BlockList{paged(6, 4, 2, 3)}, nil)}
	dst := []layout.BlockList{paged(0, 16, 10, 11, 12, layout.NoBlock), opaque(7)}
	got := uncovered(ranks, dst, segs)
	want := []layout.Run{{Group: 0, First: 12, Count: 1}, {Group: 1, First: 7, Count: 1}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v: tokens 10 and 11 of block 12 and all of group 1 are missing", got, want)
	}
	if got := uncovered(ranks, []layout.BlockList{paged(2, 8, 10, 11, 12)}, segs); got != nil {
		t.Errorf("%v are said to be missing of tokens 2 to 10", got)
	}
}

// TestUncoveredBetweenSegments: what lies between two segments is missing, in whichever order they came.
func TestUncoveredBetweenSegments(t *testing.T) {
	front, back := spansOf([]layout.BlockList{paged(0, 6, 1, 2)}, nil), spansOf([]layout.BlockList{paged(12, 8, 4, 5)}, nil)
	dst := []layout.BlockList{paged(0, 20, 10, 11, 12, 13, 14)}
	for _, segs := range [][]spans{{front, back}, {back, front}} {
		got, want := uncovered(twoGroups(t), dst, segs), []layout.Run{{First: 11, Count: 2}}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v: no segment has tokens 6 to 12", got, want)
		}
	}
	all := []spans{back, front, spansOf([]layout.BlockList{paged(6, 6, 2, 3)}, nil)}
	if got := uncovered(twoGroups(t), dst, all); got != nil {
		t.Errorf("%v are said to be missing of all tokens", got)
	}
}

// TestUncoveredWithoutTokens: a list that begins within a block names that block, also when it is for no tokens. Then nothing of it is missing, as
// in a plan of all segments at once.
func TestUncoveredWithoutTokens(t *testing.T) {
	ranks := twoGroups(t)
	dst := []layout.BlockList{paged(6, 0, 10)}
	if err := ranks[0].Layout.CheckBlocks(dst); err != nil {
		t.Fatal(err)
	}
	for _, segs := range [][]spans{
		{spansOf([]layout.BlockList{paged(0, 2, 1)}, nil), spansOf([]layout.BlockList{paged(2, 2, 1)}, nil)},
		{spansOf([]layout.BlockList{opaque(1)}, nil), spansOf(nil, nil)},
	} {
		if got := uncovered(ranks, dst, segs); got != nil {
			t.Errorf("%v are said to be missing of no tokens", got)
		}
	}
}

// TestUncoveredAtTheLastToken: the last block that there can be ends beyond 32 bits, and is missed all the same.
func TestUncoveredAtTheLastToken(t *testing.T) {
	ranks := twoGroups(t)
	const end = 1<<32 - 1
	dst := []layout.BlockList{paged(end-7, 7, 1, 2)}
	if err := ranks[0].Layout.CheckBlocks(dst); err != nil {
		t.Fatal(err)
	}
	half := []spans{spansOf([]layout.BlockList{paged(end-7, 4, 8)}, nil)}
	if got, want := uncovered(ranks, dst, half), []layout.Run{{First: 2, Count: 1}}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v: no segment has block 2", got, want)
	}
	if got := uncovered(ranks, dst, append(half, spansOf([]layout.BlockList{paged(end-3, 3, 9)}, nil))); got != nil {
		t.Errorf("%v are said to be missing of all tokens", got)
	}
}

func TestRuns(t *testing.T) {
	got := runsOf([]layout.BlockList{paged(0, 20, 4, 5, layout.NoBlock, 6, 9), opaque(10)})
	want := []layout.Run{{First: 4, Count: 3}, {First: 9, Count: 1}, {Group: 1, First: 10, Count: 1}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestClipToNoTokens: a rank's list for no tokens names a block, and does not widen what the segment covers of other ranks.
func TestClipToNoTokens(t *testing.T) {
	dst := []layout.BlockList{paged(0, 12, 5, 6, 7)}
	want := []layout.BlockList{paged(4, 4, 6)}
	for _, none := range []layout.BlockList{paged(1, 0, 1), paged(10, 0, 3)} {
		for _, lists := range [][]layout.BlockList{{none, paged(4, 4, 2)}, {paged(4, 4, 2), none}} {
			r := spans{}.with(lists[:1]).with(lists[1:])
			if got := r.clip(twoGroups(t), dst); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("of ranks that have %v: %v, want %v", lists, got, want)
			}
		}
	}
}
