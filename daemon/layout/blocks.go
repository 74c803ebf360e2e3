package layout

import "fmt"

// CheckBlocks says whether the block lists of one operation fit the layout: known groups, each at most once; as many
// ids as the tokens need; ids in range; no block twice, not even through groups that overlay each other; at most
// MaxIDs in all. Time is linear in the ids; nothing is allocated per id.
func (l *Layout) CheckBlocks(lists []BlockList) error {
	if len(lists) > MaxGroups {
		return fmt.Errorf("blocks: %d lists; must be at most %d", len(lists), MaxGroups)
	}
	var seen uint64 // groups
	total := 0
	for i := range lists {
		b := &lists[i]
		g := l.Group(b.Group)
		if g == nil {
			return fmt.Errorf("blocks: list %d is of group %d, which the layout does not have", i, b.Group)
		}
		if seen&(1<<b.Group) != 0 {
			return fmt.Errorf("blocks: group %d has two lists; give it one", b.Group)
		}
		seen |= 1 << b.Group
		if total += len(b.IDs); total > MaxIDs {
			return fmt.Errorf("blocks: more than %d ids in all lists", MaxIDs)
		}
		if err := g.CheckCount(b); err != nil {
			return err
		}
		if err := g.checkRange(b.IDs); err != nil {
			return err
		}
	}
	return l.checkTwice(lists)
}

// CheckCount says whether a list has exactly the ids that its tokens need. Lists of opaque groups may have any
// number.
func (g *Group) CheckCount(b *BlockList) error {
	if g.Kind == Opaque {
		return nil
	}
	end := uint64(b.FirstToken) + uint64(b.NTokens)
	if end > 1<<32-1 {
		return fmt.Errorf("blocks: group %d: tokens %d to %d; must end below %d", b.Group, b.FirstToken, end, uint64(1)<<32)
	}
	size := uint64(g.BlockSize)
	if need := (end+size-1)/size - uint64(b.FirstToken)/size; need != uint64(len(b.IDs)) {
		return fmt.Errorf("blocks: group %d: %d ids for tokens %d to %d; blocks of %d tokens need %d",
			b.Group, len(b.IDs), b.FirstToken, end, size, need)
	}
	return nil
}

func (g *Group) checkRange(ids []uint32) error {
	if IsAdjacent(ids) && uint64(ids[len(ids)-1]) < g.NumBlocks {
		return nil
	}
	for i, id := range ids {
		if uint64(id) >= g.NumBlocks && id != NoBlock {
			return fmt.Errorf("blocks: group %d: id %d at position %d; the group has %d blocks", g.ID, id, i, g.NumBlocks)
		}
	}
	return nil
}

// CountIDs counts the block ids of all lists, holes included.
func CountIDs(lists []BlockList) int {
	n := 0
	for i := range lists {
		n += len(lists[i].IDs)
	}
	return n
}
