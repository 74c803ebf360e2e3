package layout

import (
	"fmt"
	"slices"
)

// checkTwice looks for a block that the lists name twice, one hold domain at a time.
func (l *Layout) checkTwice(lists []BlockList) error {
	var done uint64 // domains; there are no more than groups
	for i := range lists {
		d := l.Group(lists[i].Group).domain
		if done&(1<<d) != 0 {
			continue
		}
		done |= 1 << d
		if id, twice := l.findTwice(lists[i:], d); twice {
			return l.twiceError(lists[i:], d, id)
		}
	}
	return nil
}

// scattered says whether n ids are few for the range from least to most. A set whose range is near the number of ids
// is a bitmap. A few ids scattered over many blocks are sorted instead, since clearing a large bitmap would cost
// more.
func scattered(least, most uint32, n int) bool { return uint64(most-least)/64+1 > 512+8*uint64(n) }

// findTwice returns an id that the domain's lists name twice.
func (l *Layout) findTwice(lists []BlockList, domain int) (id uint32, twice bool) {
	var all, n int
	least, most := NoBlock, uint32(0)
	sorted := true
	for i := range lists {
		if !l.inDomain(domain, &lists[i]) || len(lists[i].IDs) == 0 {
			continue
		}
		lo, hi, ascending := bounds(lists[i].IDs)
		least, most = min(least, lo), max(most, hi)
		sorted = sorted && ascending
		all++
		n += len(lists[i].IDs)
	}
	if n < 2 || all == 1 && sorted || least > most {
		return 0, false
	}
	if scattered(least, most, n) {
		return l.sortTwice(lists, domain, n)
	}
	set := make([]uint64, uint64(most-least)/64+1)
	for i := range lists {
		if !l.inDomain(domain, &lists[i]) {
			continue
		}
		for _, id := range lists[i].IDs {
			if id == NoBlock {
				continue
			}
			at := id - least
			bit := uint64(1) << (at & 63)
			if set[at>>6]&bit != 0 {
				return id, true
			}
			set[at>>6] |= bit
		}
	}
	return 0, false
}

func (l *Layout) sortTwice(lists []BlockList, domain, n int) (id uint32, twice bool) {
	ids := l.sortedIn(domain, lists, n)
	for i := 1; i < len(ids); i++ {
		if ids[i] == ids[i-1] && ids[i] != NoBlock {
			return ids[i], true
		}
	}
	return 0, false
}

// sortedIn returns the ids of the domain's lists, at most n, in ascending order; holes come last.
func (l *Layout) sortedIn(domain int, lists []BlockList, n int) []uint32 {
	ids := make([]uint32, 0, n)
	for i := range lists {
		if l.inDomain(domain, &lists[i]) {
			ids = append(ids, lists[i].IDs...)
		}
	}
	slices.Sort(ids)
	return ids
}

func (l *Layout) twiceError(lists []BlockList, domain int, id uint32) error {
	group, pos := uint32(0), -1
	for i := range lists {
		b := &lists[i]
		if l.Group(b.Group).domain != domain {
			continue
		}
		for k, x := range b.IDs {
			switch {
			case x != id:
			case pos < 0:
				group, pos = b.Group, k
			case group == b.Group:
				return fmt.Errorf("blocks: group %d: id %d is at positions %d and %d; name each block once", group, id, pos, k)
			default:
				return fmt.Errorf("blocks: id %d is in the lists of group %d (position %d) and group %d (position %d), whose blocks are the same memory",
					id, group, pos, b.Group, k)
			}
		}
	}
	return nil
}

// bounds returns the least and largest id, ignoring holes, and whether the ids ascend strictly. If there are only
// holes, the least is NoBlock and the largest 0.
func bounds(ids []uint32) (least, most uint32, ascending bool) {
	if IsAdjacent(ids) {
		return ids[0], ids[len(ids)-1], true
	}
	least, ascending = NoBlock, true
	next := uint32(0)
	for _, id := range ids {
		if id == NoBlock {
			continue
		}
		ascending = ascending && id >= next
		next = id + 1
		least, most = min(least, id), max(most, id)
	}
	return least, most, ascending
}
