package sim

import "github.com/kvpipe/kvpipe/daemon/layout"

// In some ragged seeds engines have one more layer, whose blocks are state and move only whole: a group of its own, in
// which a block is known by its place in the list. Each rank of a "tp" engine has all of it.

const stateGroup = 2

// tokensOf returns the tokens of a list; of a list of state, the places.
func tokensOf(b layout.BlockList) (from, to int) {
	if b.Group == stateGroup {
		return 0, len(b.IDs)
	}
	return int(b.FirstToken), int(b.FirstToken + b.NTokens)
}

// states adds the list of state to those of tokens from first on. An offer has it with its first piece or with its last.
func (s *Session) states(lists []layout.BlockList, first int, last bool, ids []uint32, how window) []layout.BlockList {
	if how == holes && first > 0 || how != holes && !last {
		return lists
	}
	n := min(s.eng.c.states, len(ids))
	return append(lists, layout.BlockList{Group: stateGroup, NTokens: 1, IDs: ids[:n]})
}

// lackStates notes that a piece of an offer has fewer blocks of state than takes may ask for.
func (r *Request) lackStates(lists []layout.BlockList) {
	for _, b := range lists {
		if b.Group == stateGroup && len(b.IDs) < r.c.states {
			r.gaps = append(r.gaps, gap{stateGroup, len(b.IDs), r.c.states})
		}
	}
}

// stateView makes a layer's view one of state.
func stateView(v layout.View) layout.View {
	v.Kind, v.TokenStride, v.HeadStride, v.BlockSize = layout.Opaque, 0, 0, 0
	v.FirstHead, v.Heads, v.TotalHeads, v.Part = 0, 1, 1, "state"
	return v
}
