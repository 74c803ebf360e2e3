package layout

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// threeGroups: groups 0 and 1 lie over each other, group 2 is opaque and alone.
func threeGroups(t interface{ Fatal(...any) }, blocks uint64) *Layout {
	v := plain()
	v.NumBlocks = blocks
	w := v
	w.Group, w.BlockSize = 1, 2
	o := opaqueOf(2)
	o.Region, o.NumBlocks = 2, blocks
	l, err := New([]View{v, w, o}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestCheckBlocksErrors(t *testing.T) {
	l := threeGroups(t, 100)
	cases := []struct {
		say   string
		lists []BlockList
	}{
		{"", []BlockList{{Group: 0, FirstToken: 3, NTokens: 6, IDs: []uint32{5, 9, NoBlock}}, {Group: 1}, {Group: 2, NTokens: 7, IDs: []uint32{5}}}},
		{"", []BlockList{{Group: 0, FirstToken: 4, NTokens: 0}}},
		{"list 1 is of group 3, which the layout does not have", []BlockList{{Group: 2}, {Group: 3}}},
		{"group 2 has two lists", []BlockList{{Group: 2}, {Group: 2}}},
		{"group 0: 2 ids for tokens 3 to 9; blocks of 4 tokens need 3", []BlockList{{FirstToken: 3, NTokens: 6, IDs: []uint32{1, 2}}}},
		{"group 0: 1 ids for tokens 0 to 0", []BlockList{{IDs: []uint32{1}}}},
		{"tokens 4294967295 to 4294967297; must end below", []BlockList{{FirstToken: 1<<32 - 1, NTokens: 2, IDs: []uint32{1}}}},
		{"group 0: id 100 at position 1; the group has 100 blocks", []BlockList{{NTokens: 8, IDs: []uint32{1, 100}}}},
		{"group 0: id 7 is at positions 0 and 2", []BlockList{{NTokens: 12, IDs: []uint32{7, 1, 7}}}},
		{"group 0 (position 0) and group 1 (position 0)", []BlockList{{NTokens: 4, IDs: []uint32{7}}, {Group: 2, IDs: []uint32{7}}, {Group: 1, NTokens: 2, IDs: []uint32{7}}}},
		{"group 0 (position 1) and group 1 (position 0)", []BlockList{{NTokens: 8, IDs: []uint32{7, 1}}, {Group: 1, NTokens: 2, IDs: []uint32{1}}}},
		{"more than 1048576 ids", []BlockList{{Group: 2, IDs: make([]uint32, MaxIDs+1)}}},
		{"65 lists; must be at most 64", make([]BlockList, 65)},
	}
	for _, c := range cases {
		err := l.CheckBlocks(c.lists)
		if c.say == "" && err != nil || c.say != "" && (err == nil || !strings.Contains(err.Error(), c.say)) {
			t.Errorf("error %v, should say %q", err, c.say)
		}
	}
}

// drawLists draws lists for threeGroups; ids repeat now and then.
func drawLists(t *rapid.T, blocks int) []BlockList {
	var lists []BlockList
	for g := range uint32(3) {
		if rapid.IntRange(0, 3).Draw(t, "leave out") == 0 {
			continue
		}
		id := rapid.Map(rapid.IntRange(-1, blocks-1), func(i int) uint32 { return uint32(i) })
		b := BlockList{Group: g, IDs: rapid.SliceOfN(id, 0, 6).Draw(t, "ids")}
		if rapid.Bool().Draw(t, "sorted") {
			slices.Sort(b.IDs)
		} else if n := min(len(b.IDs), blocks); rapid.Bool().Draw(t, "adjacent") {
			b.IDs = Adjacent(uint32(rapid.IntRange(0, blocks-n).Draw(t, "first")), uint32(n))
		}
		b.NTokens = uint32(len(b.IDs)) * []uint32{4, 2, 0}[g]
		lists = append(lists, b)
	}
	return lists
}

// held returns the blocks of the lists by place: groups 0 and 1 share theirs.
func held(lists []BlockList) map[[2]uint32]int {
	out := map[[2]uint32]int{}
	for _, b := range lists {
		for _, id := range b.IDs {
			if id != NoBlock {
				out[[2]uint32{b.Group / 2, id}]++
			}
		}
	}
	return out
}

func twice(lists []BlockList) bool {
	for _, n := range held(lists) {
		if n > 1 {
			return true
		}
	}
	return false
}

func TestCheckBlocksFindsEveryRepeat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few blocks make a bitmap, many are sorted.
		blocks := rapid.SampledFrom([]int{8, 30, 1 << 20}).Draw(t, "blocks")
		l := threeGroups(t, uint64(blocks))
		lists := drawLists(t, blocks)
		if blocks == 1<<20 && len(lists) > 0 && rapid.Bool().Draw(t, "repeat") {
			b := &lists[len(lists)-1]
			if n := len(b.IDs); n > 1 {
				b.IDs = slices.Clone(b.IDs)
				b.IDs[n-1] = b.IDs[0]
			}
		}
		if err := l.CheckBlocks(lists); (err != nil) != twice(lists) {
			t.Fatalf("lists %v: error %v", lists, err)
		}
	})
}

func TestOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few blocks make a bitmap, many are sorted.
		blocks := rapid.SampledFrom([]int{30, 1 << 20}).Draw(t, "blocks")
		l := threeGroups(t, uint64(blocks))
		a, b := drawLists(t, blocks), drawLists(t, blocks)
		if len(a) > 0 && len(b) > 0 && len(a[0].IDs) > 0 && len(b[0].IDs) > 0 && rapid.Bool().Draw(t, "meet") {
			b[0].IDs = slices.Clone(b[0].IDs)
			b[0].IDs[0] = a[0].IDs[len(a[0].IDs)-1]
		}
		want := false
		in := held(a)
		for k := range held(b) {
			want = want || in[k] > 0
		}
		if elsewhere := (BlockList{Group: 50, IDs: []uint32{1}}); rapid.Bool().Draw(t, "with a group of another rank") {
			a, b = append(a, elsewhere), append(b, elsewhere)
		}
		run, got := l.Overlap(a, b)
		if got != want || got && in[[2]uint32{run.Group / 2, run.First}] == 0 {
			t.Fatalf("%v and %v: overlap %v %v", a, b, run, got)
		}
	})
}

// TestOverlapOfFarIDsTakesLittle: 64 groups over one memory, of which either side names the ends. It takes memory for the ids, not for all
// that lies between them.
func TestOverlapOfFarIDsTakesLittle(t *testing.T) {
	views := make([]View, MaxGroups)
	for g := range views {
		views[g] = View{Region: 1, NumBlocks: MaxBlocks, BlockStride: 1, Group: uint32(g), Kind: Opaque, ContentBytes: 1, Part: "kv", Heads: 1, TotalHeads: 1}
	}
	l, err := New(views, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ends := func(first uint32) (lists []BlockList) {
		for g := range uint32(MaxGroups) {
			lists = append(lists, BlockList{Group: g, IDs: []uint32{first + 2*g, MaxBlocks - 1 - first - 2*g}})
		}
		return lists
	}
	a, b := ends(0), ends(1)
	if err := l.CheckBlocks(a); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if run, meet := l.Overlap(a, b); meet {
		t.Errorf("they meet in %+v", run)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 64<<10 {
		t.Errorf("%d bytes were allocated to compare %d lists of two ids", took, 2*MaxGroups)
	}
}
