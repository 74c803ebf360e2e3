package layout

// Layers that share their KV are views of one group that lie in the same place. Whether such views may be written
// depends on both ends of a hand-over, so daemon/plan decides it: they must all be given the same bytes.

// findShared notes which views of a group begin at the same byte. Most layouts have none that do.
func (l *Layout) findShared() {
	type place struct {
		group  uint32
		region RegionID
		base   uint64
	}
	first := make(map[place]int, len(l.views))
	for i := range l.groups {
		g := &l.groups[i]
		for k := range g.Views {
			v := &g.Views[k]
			at := place{v.Group, v.Region, v.Base}
			f, there := first[at]
			if !there {
				first[at] = k
				continue
			}
			if g.Shared == nil {
				g.Shared = make([]uint16, len(g.Views))
				for n := range g.Shared {
					g.Shared[n] = uint16(n)
				}
			}
			g.Shared[k] = uint16(f)
		}
	}
}
