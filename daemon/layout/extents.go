package layout

// Extents calls visit for the bytes that the lists' blocks occupy in each view of their groups: n bytes at offset off
// of a region, gaps within a block included. Some bytes may be visited more than once. For layouts of peers, which
// have no regions here, nothing is visited. The lists must have passed CheckBlocks; lists of groups that the layout
// lacks are skipped.
func (l *Layout) Extents(lists []BlockList, visit func(r RegionID, off, n uint64)) {
	for i := range l.cuts {
		p := &l.cuts[i]
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
