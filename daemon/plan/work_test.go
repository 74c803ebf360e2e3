package plan_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
)

// wide is a rank of so many layers, one view each, of which one block is given.
func wide(t *testing.T, layers int) *layout.Layout {
	views := make([]layout.View, layers)
	for i := range views {
		views[i] = layout.View{Region: 1, Base: uint64(i) * 64, NumBlocks: 4, BlockStride: uint64(layers) * 64, TokenStride: 8, HeadStride: 8, ContentBytes: 8,
			Layer: uint32(i), Kind: layout.Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv"}
	}
	l, err := layout.New(views, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// only is a rank of that view alone.
func only(t *testing.T, v layout.View) *layout.Layout {
	l, err := layout.New([]layout.View{v}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// side is an end of so many ranks, which have one list of blocks, or each its own.
func side(ranks int, l *layout.Layout, own bool) []plan.Rank {
	out := make([]plan.Rank, ranks)
	ids := []uint32{1}
	for i := range out {
		if own {
			ids = []uint32{1}
		}
		out[i] = plan.Rank{Rank: uint32(i), Layout: l, Blocks: []layout.BlockList{{NTokens: 1, IDs: ids}}}
	}
	return out
}

// TestWhatIsTooMuchToPlan is refused before it is planned: all engines' plans are made one after the other.
func TestWhatIsTooMuchToPlan(t *testing.T) {
	few, many := wide(t, 1024), wide(t, 4096)
	last := many.Views()[len(many.Views())-1]
	one := only(t, last)
	for name, c := range map[string]struct {
		producer, consumer []plan.Rank
		refused            bool
	}{
		"large engines":                      {side(16, few, true), side(16, few, true), false},
		"many ranks with many views":         {side(1, many, false), side(256, many, false), true},
		"many ranks that have the same":      {side(256, few, false), side(256, few, false), true},
		"many ranks with lists of their own": {side(1024, wide(t, 1), true), side(1024, wide(t, 1), true), false},
		"many views, of which one is taken":  {side(16, many, false), side(64, one, false), false},
		"and by many ranks from many":        {side(256, many, false), side(256, one, false), true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plan.New(plan.Request{Producer: c.producer, Consumer: c.consumer})
			if c.refused != errors.Is(err, plan.ErrTooMuch) || err != nil && !c.refused {
				t.Fatalf("refused %v, want %v: %v", errors.Is(err, plan.ErrTooMuch), c.refused, err)
			}
			if c.refused && !strings.Contains(err.Error(), "take with fewer ranks at once") {
				t.Error(err)
			}
		})
	}
}

// TestComparingWhatIsOfferedAndTakenCounts: ranks that take from themselves are compared, list by list. Lists that they share are compared once.
func TestComparingWhatIsOfferedAndTakenCounts(t *testing.T) {
	const n = 1 << 18
	l := tensor(t, 1, 2*n, 1024, false)
	ids := ascendingIDs(2 * n)
	for _, own := range []bool{false, true} {
		var producer, consumer []plan.Rank
		src, dst := blockList(ids[:n]), blockList(ids[n:])
		for i := range uint32(64) {
			if own {
				src = blockList(ids[:n])
			}
			producer = append(producer, plan.Rank{Rank: i, Layout: l, Blocks: src})
			consumer = append(consumer, plan.Rank{Rank: i, Layout: l, Blocks: dst})
		}
		_, err := plan.New(plan.Request{Producer: producer, Consumer: consumer, SameNode: true, SameSession: func(s, d uint32) bool { return s == d }})
		if refused := errors.Is(err, plan.ErrTooMuch); refused != own || err != nil && !refused {
			t.Errorf("lists of their own %v: refused %v: %v", own, refused, err)
		}
	}
}

// TestBlockIDsOfEveryTrackCount: layers may each come from a rank of their own, which has a list of its own, and all of them lack the same
// blocks. What is missing is said of each block once, and if it takes too long to find, the plan is refused before.
func TestBlockIDsOfEveryTrackCount(t *testing.T) {
	for _, c := range []struct {
		layers, n int
		refused   bool
	}{{4, 1 << 20, false}, {255, 1 << 12, false}, {255, 1 << 20, true}} {
		l := tensor(t, c.layers, 2*c.n, 1024, false)
		ids := make([]uint32, c.n)
		for i := range ids {
			ids[i] = uint32(2 * i)
		}
		var producer []plan.Rank
		for i := range uint32(c.layers) { // each has a layer, and the first block
			view := l.Views()[i]
			own, err := layout.New([]layout.View{view}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			producer = append(producer, plan.Rank{Rank: i, Layout: own, Blocks: blockList([]uint32{0})})
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p, err := plan.New(plan.Request{Producer: producer, Consumer: []plan.Rank{{Layout: l, Blocks: blockList(ids)}}})
		runtime.ReadMemStats(&after)
		if took, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+128*c.n); took > most {
			t.Errorf("%d layers, %d block ids: %d bytes were allocated, want %d at most", c.layers, c.n, took, most)
		}
		switch {
		case c.refused != errors.Is(err, plan.ErrTooMuch) || err != nil && !c.refused:
			t.Errorf("%d layers, %d block ids: refused %v, want %v: %v", c.layers, c.n, errors.Is(err, plan.ErrTooMuch), c.refused, err)
		case err == nil && len(p.Missing()) != c.n-1:
			t.Errorf("%d layers, %d block ids: %d runs are missing, want %d", c.layers, c.n, len(p.Missing()), c.n-1)
		}
	}
}
