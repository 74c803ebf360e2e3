package layout

import "slices"

// Overlap returns the first block of b that a names too, one hold domain after another. Lists of different groups of
// one hold domain are compared as well. Both a and b must have passed CheckBlocks; lists of groups that the layout
// lacks are skipped.
func (l *Layout) Overlap(a, b []BlockList) (Run, bool) {
	var done uint64 // domains; there are no more than groups
	for i := range b {
		g := l.Group(b[i].Group)
		if g == nil || done&(1<<g.domain) != 0 {
			continue
		}
		done |= 1 << g.domain
		if run, meet := l.overlapIn(g.domain, a, b[i:]); meet {
			return run, true
		}
	}
	return Run{}, false
}

// overlapIn compares the lists of one domain. Mostly the two sides use different ranges of ids, which is checked
// first.
func (l *Layout) overlapIn(domain int, a, b []BlockList) (Run, bool) {
	least, most, n := l.boundsIn(domain, a)
	least2, most2, n2 := l.boundsIn(domain, b)
	least, most = max(least, least2), min(most, most2)
	if least > most {
		return Run{}, false
	}
	named := l.idSet(domain, a, least, most, n+n2)
	for i := range b {
		if !l.inDomain(domain, &b[i]) {
			continue
		}
		for _, id := range b[i].IDs {
			if id >= least && id <= most && named(id) {
				return Run{Group: b[i].Group, First: id, Count: 1}, true
			}
		}
	}
	return Run{}, false
}

// idSet returns a function that says whether the domain's lists name an id between least and most. See scattered.
func (l *Layout) idSet(domain int, lists []BlockList, least, most uint32, n int) (named func(id uint32) bool) {
	if scattered(least, most, n) {
		ids := l.sortedIn(domain, lists, n)
		return func(id uint32) bool {
			_, found := slices.BinarySearch(ids, id)
			return found
		}
	}
	set := make([]uint64, uint64(most-least)>>6+1)
	for i := range lists {
		if !l.inDomain(domain, &lists[i]) {
			continue
		}
		for _, id := range lists[i].IDs {
			if id >= least && id <= most {
				set[(id-least)>>6] |= 1 << ((id - least) & 63)
			}
		}
	}
	return func(id uint32) bool { return set[(id-least)>>6]&(1<<((id-least)&63)) != 0 }
}

// inDomain says whether a list names blocks of the domain.
func (l *Layout) inDomain(domain int, b *BlockList) bool {
	g := l.Group(b.Group)
	return g != nil && g.domain == domain
}

// boundsIn returns the least and largest id of the domain's lists, ignoring holes, and the number of ids, including
// holes.
func (l *Layout) boundsIn(domain int, lists []BlockList) (least, most uint32, n int) {
	least = NoBlock
	for i := range lists {
		if l.inDomain(domain, &lists[i]) {
			lo, hi, _ := bounds(lists[i].IDs)
			least, most, n = min(least, lo), max(most, hi), n+len(lists[i].IDs)
		}
	}
	return least, most, n
}
