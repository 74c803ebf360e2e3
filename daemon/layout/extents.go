package layout

// Extents calls visit for the bytes that the lists' blocks occupy in each view of their groups: n bytes at offset off
// of a region, gaps within a block included. Some bytes may be visited more than once. For layouts of peers, which
// have no regions here, nothing is visited. The lists must have passed CheckBlocks; lists of groups that the layout
// lacks are skipped.
func (l *Layout) Extents(lists []BlockList, visit func(r RegionID, off, n uint64)) {
	type place struct {
		region             RegionID
		lo, stride, extent uint64
		group              uint32
	}
	seen := make(map[place]struct{}, len(l.cuts)) // layers that share their KV are many views of one place, which is visited once
	for i := range l.cuts {
		p := &l.cuts[i]
		at := place{p.region, p.lo, p.stride, p.extent, l.views[p.view].Group}
		if _, again := seen[at]; again {
			continue
		}
		seen[at] = struct{}{}
		for k := range lists {
			if lists[k].Group != l.views[p.view].Group {
				continue
			}
			for _, id := range lists[k].IDs {
				if id != NoBlock {
					visit(p.region, p.lo+uint64(id)*p.stride, p.extent)
				}
			}
		}
	}
}
