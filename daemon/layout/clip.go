package layout

// Clip restricts the lists of one operation to what another covers, group by group: to the tokens that window's list
// of the same group has. Groups that window lacks are left out, so are lists without tokens in common. Lists of opaque
// groups stay whole when window has their group. The ids are shared, not copied. The layout is that of lists, which
// must have passed CheckBlocks.
//
// A growing offer moves segment by segment: each segment's plan is of the segment's blocks and of the take's blocks,
// clipped to them.
func (l *Layout) Clip(lists, window []BlockList) []BlockList {
	var out []BlockList
	for i := range lists {
		g := l.Group(lists[i].Group)
		if g == nil {
			continue
		}
		for k := range window {
			if window[k].Group != g.ID {
				continue
			}
			if b, some := g.clip(lists[i], &window[k]); some {
				out = append(out, b)
			}
		}
	}
	return out
}

func (g *Group) clip(b BlockList, window *BlockList) (BlockList, bool) {
	if g.Kind == Opaque {
		return b, true
	}
	size := uint64(g.BlockSize)
	first := max(uint64(b.FirstToken), uint64(window.FirstToken))
	end := min(uint64(b.FirstToken)+uint64(b.NTokens), uint64(window.FirstToken)+uint64(window.NTokens))
	if first >= end {
		return BlockList{}, false
	}
	skip := uint64(b.FirstToken) / size
	b.IDs = b.IDs[first/size-skip : (end+size-1)/size-skip]
	b.FirstToken, b.NTokens = uint32(first), uint32(end-first)
	return b, true
}
