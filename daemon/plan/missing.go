package plan

import (
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// lacks marks the blocks of a consumer's list for which a source does not have all tokens. All tracks to the same
// list share one: the list may have hundreds of sources, and most of them lack the same blocks.
type lacks struct {
	ids    []uint32
	marked []uint64 // bit by position in ids
}

// lack marks a block of the consumer's list.
func (t *track) lack(i int) {
	if t.lacks == nil {
		t.lacks = &lacks{t.dst.ids, make([]uint64, (len(t.dst.ids)+63)/64)}
	}
	t.lacks.marked[i/64] |= 1 << (i % 64)
}

// missing collects the missing blocks of all tracks.
func (b *builder) missing() []layout.Run {
	var runs []layout.Run
	for _, t := range b.tracks {
		if t.lacks != nil {
			runs = t.lacks.appendRuns(runs, t.group)
			t.lacks = nil // the plan keeps the track, not its lacks
		}
	}
	slices.SortFunc(runs, func(a, b layout.Run) int {
		if c := cmp.Compare(a.Group, b.Group); c != 0 {
			return c
		}
		return cmp.Compare(a.First, b.First)
	})
	out := runs[:0]
	for _, r := range runs {
		if n := len(out) - 1; n >= 0 && out[n].Group == r.Group && r.First <= out[n].First+out[n].Count {
			out[n].Count = max(out[n].First+out[n].Count, r.First+r.Count) - out[n].First
		} else {
			out = append(out, r)
		}
	}
	return out
}

// appendRuns appends the marked blocks and clears the marks: other tracks share them and must not append them again. It
// counts the runs first, as findSpans does.
func (l *lacks) appendRuns(runs []layout.Run, group uint32) []layout.Run {
	if l.marked == nil {
		return runs
	}
	n := 0
	l.visit(func(_ uint32, follows bool) {
		if !follows {
			n++
		}
	})
	runs = slices.Grow(runs, n)
	l.visit(func(id uint32, follows bool) {
		if follows {
			runs[len(runs)-1].Count++
		} else {
			runs = append(runs, layout.Run{Group: group, First: id, Count: 1})
		}
	})
	l.marked = nil
	return runs
}

// visit calls f for each marked block; follows says that it lies behind the one before.
func (l *lacks) visit(f func(id uint32, follows bool)) {
	next := uint64(layout.NoBlock)
	for i, id := range l.ids {
		if l.marked[i/64]&(1<<(i%64)) != 0 {
			f(id, uint64(id) == next)
			next = uint64(id) + 1
		}
	}
}
