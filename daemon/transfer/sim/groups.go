package sim

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// In some seeds engines have a second group: the last layer, with blocks of another size and ids of its own. Its
// window slides: it keeps only the last tokens.

// window is how a list of the second group leaves out earlier tokens, for which the group has no blocks.
type window int

const (
	later window = iota // its list begins at a later token than the first group's
	holes               // its list has holes
	atEnd               // like later, and all of it belongs to the last segment of an offer
)

// groupOf returns the group of a layer.
func (s shape) groupOf(layer uint32) uint32 {
	switch {
	case layer == stateLayer:
		return stateGroup
	case s.second > 0 && layer == layers-1:
		return 1
	}
	return 0
}

// size returns how many tokens a block of the group has.
func (s shape) size(group uint32) int {
	switch group {
	case stateGroup:
		return 1
	case 1:
		return s.second
	}
	return s.blockSize
}

// need returns how many blocks so many tokens need, in the group that needs the most.
func (s shape) need(tokens int) int {
	size := s.blockSize
	if s.second > 0 {
		size = min(size, s.second)
	}
	return (tokens + size - 1) / size
}

// groups returns the groups of which the rank has layers.
func (m *memory) groups() []uint32 {
	var all []uint32
	for _, l := range m.part.layers {
		if g := m.shape.groupOf(l); !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	return all
}

// place numbers the blocks of all groups in one sequence.
func place(group, id uint32) uint32 { return group*numBlocks + id }

// places returns the places of the lists' blocks, for groups that the rank has.
func (m *memory) places(lists []layout.BlockList) []uint32 {
	var all []uint32
	for _, b := range lists {
		for _, id := range b.IDs {
			if id != layout.NoBlock && slices.Contains(m.groups(), b.Group) {
				all = append(all, place(b.Group, id))
			}
		}
	}
	return all
}

// blocks returns the lists of tokens first to stop of a prompt of so many tokens, for all groups that the asker's
// ranks have.
func (s *Session) blocks(first, stop, tokens int, ids []uint32, how window) []layout.BlockList {
	has := func(g uint32) bool {
		return slices.ContainsFunc(s.ranks(), func(w *Session) bool { return slices.Contains(w.mem.groups(), g) })
	}
	var lists []layout.BlockList
	if has(0) {
		lists = append(lists, list(s.cut().blockSize, first, stop, ids))
	}
	if has(stateGroup) {
		lists = s.states(lists, first, stop == tokens, ids, how)
	}
	if !has(1) || how == atEnd && stop < tokens {
		return lists
	}
	if how == atEnd {
		first = 0
	}
	from := max(first, tokens-s.eng.c.slides)
	if how != holes {
		first = from
	}
	if first >= stop {
		return lists
	}
	size := s.cut().second
	b := list(size, first, stop, mirrored(ids))
	b.Group = 1
	for i := range b.IDs {
		if (first/size+i+1)*size <= from {
			b.IDs[i] = layout.NoBlock
		}
	}
	return append(lists, b)
}

// mirrored returns the ids of a second group's blocks, which must differ from those that the first group has.
func mirrored(ids []uint32) []uint32 {
	out := make([]uint32, len(ids))
	for i, id := range ids {
		out[i] = numBlocks - 1 - id
	}
	return out
}
