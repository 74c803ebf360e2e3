package layout

import "math/bits"

// Union returns one list for each group that the layout has, with each block of the lists once, ascending. Its lists
// are for Extents: they say nothing of tokens. Many offers may name the same blocks.
func (l *Layout) Union(all [][]BlockList) []BlockList {
	var out []BlockList
	for i := range l.groups {
		g := &l.groups[i]
		var set []uint64
		for _, lists := range all {
			for k := range lists {
				if lists[k].Group != g.ID {
					continue
				}
				if set == nil {
					set = make([]uint64, (g.NumBlocks+63)/64)
				}
				for _, id := range lists[k].IDs {
					if uint64(id) < g.NumBlocks {
						set[id/64] |= 1 << (id % 64)
					}
				}
			}
		}
		b := BlockList{Group: g.ID}
		for i, w := range set {
			for ; w != 0; w &= w - 1 {
				b.IDs = append(b.IDs, uint32(i*64+bits.TrailingZeros64(w)))
			}
		}
		if b.IDs != nil {
			out = append(out, b)
		}
	}
	return out
}
