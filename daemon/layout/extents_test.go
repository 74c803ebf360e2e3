package layout

import (
	"slices"
	"testing"
)

type extent struct{ off, n uint64 }

// TestExtentsOfLayersThatShareTheirKV: each place is visited once, however many layers lie there.
func TestExtentsOfLayersThatShareTheirKV(t *testing.T) {
	var views []View
	for i := range uint32(64) {
		views = append(views, View{Region: 1, Base: uint64(i%2) * 4096, NumBlocks: 8, BlockStride: 512, TokenStride: 512, HeadStride: 512, ContentBytes: 512,
			Layer: i, Kind: Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv"})
	}
	l, err := New(views, nil, func(RegionID) (uint64, bool) { return 8192, true })
	if err != nil {
		t.Fatal(err)
	}
	var got []extent
	l.Extents([]BlockList{{NTokens: 2, IDs: []uint32{5, 2}}}, func(_ RegionID, off, n uint64) { got = append(got, extent{off, n}) })
	slices.SortFunc(got, func(a, b extent) int { return int(a.off) - int(b.off) })
	if want := []extent{{1024, 512}, {2560, 512}, {5120, 512}, {6656, 512}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestUnionNamesEachBlockOnce, of each group, in whatever order and however often lists do; holes and groups that the layout lacks are none.
func TestUnionNamesEachBlockOnce(t *testing.T) {
	view := func(group uint32) View {
		return View{Region: 1, Base: uint64(group) * 4096, NumBlocks: 8, BlockStride: 512, TokenStride: 512, HeadStride: 512, ContentBytes: 512,
			Layer: group, Group: group, Kind: Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv"}
	}
	l, err := New([]View{view(0), view(1), view(2)}, nil, func(RegionID) (uint64, bool) { return 1 << 20, true })
	if err != nil {
		t.Fatal(err)
	}
	got := l.Union([][]BlockList{
		{{Group: 2, IDs: []uint32{7, 0}}, {Group: 0, IDs: []uint32{3, NoBlock, 1}}},
		{{Group: 0, IDs: []uint32{1, 2}}, {Group: 9, IDs: []uint32{1}}},
	})
	if len(got) != 2 || got[0].Group != 0 || !slices.Equal(got[0].IDs, []uint32{1, 2, 3}) || got[1].Group != 2 || !slices.Equal(got[1].IDs, []uint32{0, 7}) {
		t.Errorf("%+v", got)
	}
	if got = l.Union(nil); len(got) != 0 {
		t.Errorf("of nothing: %+v", got)
	}
}
