package layout

// Extents calls visit for the bytes that blocks of the lists occupy in each view of their groups, gaps within a block included: n bytes
// at off of a region. Layouts of peers have no regions here, and nothing is visited. The lists must have passed CheckBlocks; lists of groups
// that the layout lacks are left out. Some bytes may be visited more than once.
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
