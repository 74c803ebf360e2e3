package plan

import (
	"fmt"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// checkShared refuses consumer views of a group that lie in the same place while their sources do not: each would
// overwrite the other, and the take would end as if all were well. Views in the same place are meant for layers that
// share their KV at both ends. segments are the group's, in the order of its views. Group.Shared says which views
// share a place.
func (b *builder) checkShared(dst int, group *layout.Group, segments []segment) error {
	given := make([][]segment, len(group.Views)) // by place, given as its first view: the segments of the first view that has any
	for k := range group.Views {
		n := 0
		for n < len(segments) && segments[n].d == &group.Views[k] {
			n++
		}
		mine, first := segments[:n], &given[group.Shared[k]]
		segments = segments[n:]
		switch {
		case n == 0:
		case *first == nil:
			*first = mine
		case !sameBytes(*first, mine):
			v, w := (*first)[0].d, mine[0].d
			return fmt.Errorf("plan: %w: layer %d part %q and layer %d part %q of group %d lie in the same place at consumer rank %d, "+
				"and in different ones at the producer: each would overwrite the other; give each memory of its own",
				ErrIncompatible, v.Layer, v.Part, w.Layer, w.Part, v.Group, b.consumer[dst].Rank)
		}
	}
	return nil
}

// sameBytes says whether two views that begin at the same byte are given the same elements.
func sameBytes(a, b []segment) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := &a[i], &b[i]
		if x.src != y.src || x.head-x.d.FirstHead != y.head-y.d.FirstHead || x.srcOff() != y.srcOff() || !x.sameShape(y) {
			return false
		}
	}
	return true
}
