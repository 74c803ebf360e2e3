package plan

import (
	"fmt"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// checkShared refuses views of a consumer's group that lie in one place while their sources do not: either would overwrite the other, and
// the take would end as if nothing had happened. Layers that share their KV at both ends are what such views are for. segments are those
// of the group, in the order of its views. Which views share a place was found when the layout was made.
func (b *builder) checkShared(dst int, group *layout.Group, segments []segment) error {
	given := make([][]segment, len(group.Views)) // what comes for the first view of each place for which something does
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

// sameBytes says whether what comes for two views that begin at the same byte is the same, element by element.
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
