package layout

// Overlap returns the first block of b that is also named by a, of the same group or of one that lies over it. Both
// must have passed CheckBlocks; lists of groups that the layout lacks are left out.
func (l *Layout) Overlap(a, b []BlockList) (Run, bool) {
	for i := range b {
		g := l.Group(b[i].Group)
		if g == nil {
			continue
		}
		for k := range a {
			h := l.Group(a[k].Group)
			if h == nil || h.domain != g.domain {
				continue
			}
			if id, common := commonID(a[k].IDs, b[i].IDs); common {
				return Run{Group: g.ID, First: id, Count: 1}, true
			}
		}
	}
	return Run{}, false
}

// commonID finds the first id of b that is in a. Most lists lie in different ranges of ids.
func commonID(a, b []uint32) (uint32, bool) {
	least, most, _ := bounds(a)
	least2, most2, _ := bounds(b)
	least, most = max(least, least2), min(most, most2)
	if least > most {
		return 0, false
	}
	set := make([]uint64, uint64(most-least)/64+1)
	for _, id := range a {
		if id >= least && id <= most {
			set[(id-least)>>6] |= 1 << ((id - least) & 63)
		}
	}
	for _, id := range b {
		if id >= least && id <= most && set[(id-least)>>6]&(1<<((id-least)&63)) != 0 {
			return id, true
		}
	}
	return 0, false
}
