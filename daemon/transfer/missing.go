package transfer

import (
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// lack adds to the blocks that the producer does not have. A producer may let as many segments as it likes lack some, or
// the same ones, so a few are set aside until they are worth a walk through all that are missing.
func (t *take) lack(runs []layout.Run) {
	t.aside = append(t.aside, runs...)
	if len(t.aside) >= len(t.missing)/4 {
		t.gather()
	}
}

// gather adds what was set aside to missing.
func (t *take) gather() { t.missing, t.aside = unite(t.missing, t.aside), nil }

// unite returns the blocks of two lists in ascending order, each block once. a has to be such a list already; b may
// have a block twice only if a is not empty. Neither is changed.
func unite(a, b []layout.Run) []layout.Run {
	if len(b) == 0 {
		return a
	}
	if !slices.IsSortedFunc(b, compareRuns) {
		b = slices.SortedFunc(slices.Values(b), compareRuns)
	}
	if len(a) == 0 {
		return b
	}
	out := make([]layout.Run, 0, max(len(a), len(b)))
	for len(a)+len(b) > 0 {
		from := &a
		if len(a) == 0 || len(b) > 0 && compareRuns(b[0], a[0]) < 0 {
			from = &b
		}
		r := (*from)[0]
		*from = (*from)[1:]
		if n := len(out) - 1; n >= 0 && out[n].Group == r.Group && uint64(r.First) <= after(out[n]) {
			out[n].Count = uint32(max(after(out[n]), after(r)) - uint64(out[n].First))
		} else {
			out = append(out, r)
		}
	}
	return out
}

// after is the block number that follows a run's last block.
func after(r layout.Run) uint64 { return uint64(r.First) + uint64(r.Count) }

func compareRuns(a, b layout.Run) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.First, b.First))
}
