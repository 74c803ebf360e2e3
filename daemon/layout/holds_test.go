package layout

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type heldOp struct {
	lists     []BlockList
	exclusive bool
}

// TestHolds compares the table with the list of what is held.
func TestHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const blocks = 40
		l := threeGroups(t, blocks)
		h := NewHolds(l)
		var ops []heldOp
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				op := heldOp{drawLists(t, blocks), rapid.Bool().Draw(t, "exclusive")}
				if l.CheckBlocks(op.lists) != nil {
					t.Skip("not an operation: a block twice")
				}
				conflict := conflicts(ops, op)
				if free := h.Free(op.lists); free != (len(conflicts(ops, heldOp{op.lists, true})) == 0) {
					t.Fatalf("%v are free: %v; held are %v", op.lists, free, ops)
				}
				run, err := h.Acquire(op.lists, op.exclusive)
				switch {
				case (err != nil) != (len(conflict) > 0):
					t.Fatalf("error %v, conflicts %v", err, conflict)
				case err == nil:
					ops = append(ops, op)
				case !conflict[[2]uint32{run.Group / 2, run.First}]:
					t.Fatalf("%v is said to conflict, but only %v do", run, conflict)
				}
			},
			"release": func(t *rapid.T) {
				if len(ops) == 0 {
					t.Skip("nothing is held")
				}
				i := rapid.IntRange(0, len(ops)-1).Draw(t, "which")
				h.Release(ops[i].lists, ops[i].exclusive)
				ops = append(ops[:i], ops[i+1:]...)
			},
			"": func(t *rapid.T) {
				var shared, exclusive int
				for _, op := range ops {
					if n := len(held(op.lists)); op.exclusive {
						exclusive += n
					} else {
						shared += n
					}
				}
				if s, x := h.Held(); s != shared || x != exclusive {
					t.Fatalf("%d shared and %d exclusive holds, want %d and %d", s, x, shared, exclusive)
				}
			},
		})
	})
}

func conflicts(ops []heldOp, op heldOp) map[[2]uint32]bool {
	out := map[[2]uint32]bool{}
	for _, other := range ops {
		if !other.exclusive && !op.exclusive {
			continue
		}
		theirs := held(other.lists)
		for k := range held(op.lists) {
			if theirs[k] > 0 {
				out[k] = true
			}
		}
	}
	return out
}

// TestHoldsOfALargerGroup: a table has the blocks of the largest of the groups that lie over each other, whichever comes first.
func TestHoldsOfALargerGroup(t *testing.T) {
	for _, large := range []uint32{0, 1} {
		views := []View{opaqueOf(0), opaqueOf(1)}
		views[large].NumBlocks = 3 * chunkBlocks
		l, err := New(views, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		last := []BlockList{{Group: large, IDs: []uint32{3*chunkBlocks - 1}}}
		if _, err := NewHolds(l).Acquire(last, true); err != nil {
			t.Error(err)
		}
	}
}

func TestHoldsSayWho(t *testing.T) {
	h := NewHolds(threeGroups(t, 9000))
	offer := []BlockList{{NTokens: 8, IDs: []uint32{8191, 3}}, {Group: 50, NTokens: 1, IDs: []uint32{1}}}
	if _, err := h.Acquire(offer, false); err != nil {
		t.Fatal(err)
	}
	run, err := h.Acquire([]BlockList{{Group: 1, NTokens: 4, IDs: []uint32{7, 3}}}, true)
	if err == nil || !strings.Contains(err.Error(), "block 3 of group 1 is offered") || run != (Run{1, 3, 1}) {
		t.Errorf("%v %v", run, err)
	}
	h.Release(offer, false)
	if !h.Free(offer) {
		t.Error("what was released is not free")
	}
	take := []BlockList{{NTokens: 4, IDs: []uint32{8191}}}
	if _, err := h.Acquire(take, true); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Acquire(offer, false); err == nil || !strings.Contains(err.Error(), "block 8191 of group 0 is being written") {
		t.Errorf("%v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a release of what is not held went unseen")
		}
	}()
	h.Release(take, false)
}

// TestHoldsOfRuns: a run of blocks longer than a chunk of the table is held as a whole or not at all.
func TestHoldsOfRuns(t *testing.T) {
	h := NewHolds(threeGroups(t, 20000))
	run := []BlockList{{NTokens: 4 * 12000, IDs: Adjacent(3000, 12000)}}
	one := []BlockList{{NTokens: 4, IDs: []uint32{9000}}}
	for _, exclusive := range []bool{false, true} {
		if _, err := h.Acquire(one, !exclusive); err != nil {
			t.Fatal(err)
		}
		if at, err := h.Acquire(run, exclusive); err == nil || at != (Run{0, 9000, 1}) {
			t.Errorf("%v %v", at, err)
		}
		if s, x := h.Held(); s+x != 1 {
			t.Errorf("%d shared and %d exclusive holds after a refusal, want 1", s, x)
		}
		h.Release(one, !exclusive)
		if _, err := h.Acquire(run, exclusive); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Acquire(one, true); err == nil {
			t.Error("a block of the run is free")
		}
		if s, x := h.Held(); s+x != 12000 {
			t.Errorf("%d shared and %d exclusive holds, want 12000", s, x)
		}
		h.Release(run, exclusive)
	}
	defer func() {
		if r := recover(); r == nil || !strings.Contains(r.(string), "block 3000 of group 0") {
			t.Errorf("a release of what is not held: %v", r)
		}
	}()
	if _, err := h.Acquire(one, true); err != nil {
		t.Fatal(err)
	}
	h.Release(run, true)
}

// TestHoldsOfOverlappingRuns compares the table with a count for each block.
func TestHoldsOfOverlappingRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const blocks = 3 * chunkBlocks
		h := NewHolds(threeGroups(t, blocks))
		counts := make([]int32, blocks)
		type op struct {
			lists     []BlockList
			exclusive bool
		}
		var ops []op
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if len(ops) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(ops)-1).Draw(t, "which")
				o := ops[i]
				ops = append(ops[:i], ops[i+1:]...)
				h.Release(o.lists, o.exclusive)
				for _, id := range o.lists[0].IDs {
					counts[id] -= step(o.exclusive)
				}
				continue
			}
			first := rapid.IntRange(0, blocks-1).Draw(t, "first")
			n := min(rapid.SampledFrom([]int{1, 63, 64, 65, 200, 4096, 5000}).Draw(t, "blocks"), blocks-first)
			o := op{[]BlockList{{NTokens: uint32(4 * n), IDs: Adjacent(uint32(first), uint32(n))}}, rapid.Bool().Draw(t, "exclusive")}
			free := -1
			for _, id := range o.lists[0].IDs {
				if counts[id] < 0 || o.exclusive && counts[id] != 0 {
					free = int(id)
					break
				}
			}
			run, err := h.Acquire(o.lists, o.exclusive)
			if (err != nil) != (free >= 0) || err != nil && run != (Run{0, uint32(free), 1}) {
				t.Fatalf("%v %v, want a conflict at %d", run, err, free)
			}
			if err == nil {
				ops = append(ops, o)
				for _, id := range o.lists[0].IDs {
					counts[id] += step(o.exclusive)
				}
			}
		}
		for id, n := range counts {
			if free := h.Free([]BlockList{{NTokens: 4, IDs: []uint32{uint32(id)}}}); free != (n == 0) {
				t.Fatalf("block %d is free: %v, with %d holds", id, free, n)
			}
		}
	})
}

// TestSizeOfHolds: it counts the parts of the table that exist, and does not look for them: it is asked for each offer of a session that died.
func TestSizeOfHolds(t *testing.T) {
	table := func(blocks uint64) *Holds {
		l, err := New([]View{{
			Region: 1, NumBlocks: blocks, BlockStride: 1, TokenStride: 1, HeadStride: 1, ContentBytes: 1, Kind: Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv",
		}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return NewHolds(l)
	}
	h := table(MaxBlocks)
	for _, c := range []struct {
		ids  []uint32
		want int // chunks
	}{
		{[]uint32{0, 1}, 1}, {[]uint32{5, 3}, 1}, {[]uint32{NoBlock, 2 * chunkBlocks, 9 * chunkBlocks}, 3}, {Adjacent(chunkBlocks-1, 2*chunkBlocks), 4}, {Adjacent(2*chunkBlocks, 8), 4},
	} {
		lists := []BlockList{{NTokens: uint32(len(c.ids)), IDs: c.ids}}
		if _, err := h.Acquire(lists, false); err != nil {
			t.Fatal(err)
		}
		h.Release(lists, false)
		if got := h.Size(); got != c.want*chunkBlocks {
			t.Errorf("%d counts once %d blocks were held, want %d chunks", got, len(c.ids), c.want)
		}
	}
	took := func(h *Holds) (least time.Duration) {
		for run := range 10 {
			start := time.Now()
			for range 100 {
				h.Size()
			}
			if d := time.Since(start); run == 0 || d < least {
				least = d
			}
		}
		return least
	}
	if one, many := took(table(1)), took(h); many > 50*max(one, time.Microsecond) {
		t.Errorf("%v for a small table, and %v for the largest", one, many)
	}
}

func step(exclusive bool) int32 {
	if exclusive {
		return writing
	}
	return 1
}

func BenchmarkHoldRun(b *testing.B) {
	const n = 4096
	h := NewHolds(threeGroups(b, 3*n))
	lists := []BlockList{{NTokens: 4 * n, IDs: Adjacent(1000, n)}}
	for i := 0; b.Loop(); i++ {
		if _, err := h.Acquire(lists, i%2 == 0); err != nil {
			b.Fatal(err)
		}
		h.Release(lists, i%2 == 0)
	}
}

func BenchmarkCheckAndHold(b *testing.B) {
	const n = 262144
	l := threeGroups(b, n)
	h := NewHolds(l)
	ids := make([]uint32, n)
	for i, id := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
		ids[i] = uint32(id)
	}
	lists := []BlockList{{NTokens: n * 4, IDs: ids}}
	for b.Loop() {
		if err := l.CheckBlocks(lists); err != nil {
			b.Fatal(err)
		}
		if _, err := h.Acquire(lists, true); err != nil {
			b.Fatal(err)
		}
		h.Release(lists, true)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/id")
}
