package transfer

import (
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// span is the range of tokens of one group that a segment has.
type span struct {
	group       uint32
	first, last uint32 // last is exclusive
}

// spans is what a segment covers. If an offer has several segments, both ends clip the take's blocks by it before they
// plan one, so that what belongs to other segments does not count as missing.
type spans []span

func spansOf(all []layout.BlockList, by map[uint32][]layout.BlockList) spans {
	var r spans
	r = r.with(all)
	for _, lists := range by {
		r = r.with(lists)
	}
	return r
}

func (r spans) with(lists []layout.BlockList) spans {
	for _, b := range lists {
		if len(b.IDs) == 0 {
			continue // as if the group were left out; the tokens of an opaque list would not tell
		}
		own := span{b.Group, b.FirstToken, b.FirstToken + b.NTokens}
		switch s := r.of(b.Group); {
		case s == nil:
			r = append(r, own)
		case b.NTokens == 0: // the block within which it begins is no part of the segment
		case s.first == s.last:
			*s = own
		default:
			s.first, s.last = min(s.first, own.first), max(s.last, own.last)
		}
	}
	return r
}

func (r spans) of(group uint32) *span {
	for i := range r {
		if r[i].group == group {
			return &r[i]
		}
	}
	return nil
}

// clip cuts lists to what the segment covers. Opaque groups have no tokens and stay whole.
func (r spans) clip(ranks []RankLayout, lists []layout.BlockList) []layout.BlockList {
	var out []layout.BlockList
	for _, b := range lists {
		s, g := r.of(b.Group), groupOf(ranks, b.Group)
		switch {
		case s == nil || g == nil:
		case g.Kind == layout.Opaque:
			out = append(out, b)
		default:
			first, last := max(s.first, b.FirstToken), min(s.last, b.FirstToken+b.NTokens)
			if first >= last {
				continue
			}
			skip := first/g.BlockSize - b.FirstToken/g.BlockSize
			count := (last-1)/g.BlockSize - first/g.BlockSize + 1
			if uint64(skip)+uint64(count) > uint64(len(b.IDs)) {
				continue // a peer's list that does not fit its tokens; the plan refuses it
			}
			out = append(out, layout.BlockList{Group: b.Group, FirstToken: first, NTokens: last - first, IDs: b.IDs[skip : skip+count]})
		}
	}
	return out
}

func groupOf(ranks []RankLayout, group uint32) *layout.Group {
	for _, r := range ranks {
		if g := r.Layout.Group(group); g != nil {
			return g
		}
	}
	return nil
}

// uncovered lists the blocks of paged lists with tokens that no segment covers, and the blocks of opaque lists that no
// segment has. What lies between two segments is planned, and moved, by neither.
func uncovered(ranks []RankLayout, lists []layout.BlockList, covered []spans) []layout.Run {
	var out []layout.Run
	for _, b := range lists {
		g := groupOf(ranks, b.Group)
		if g == nil || g.Kind == layout.Paged && b.NTokens == 0 {
			continue // for no tokens a list may name a block, too: the one within which it begins
		}
		have := joined(covered, b.Group)
		any := len(have) > 0
		for i, id := range b.IDs {
			if id == layout.NoBlock {
				continue
			}
			if g.Kind == layout.Paged && any {
				size, from := uint64(g.BlockSize), uint64(b.FirstToken)
				at := (from/size + uint64(i)) * size // plus the size it may need more than 32 bits, though no token does
				first, last := max(at, from), min(at+size, from+uint64(b.NTokens))
				for len(have) > 0 && uint64(have[0].last) < last {
					have = have[1:] // it does not reach the later blocks either
				}
				if len(have) > 0 && uint64(have[0].first) <= first {
					continue
				}
			} else if any {
				continue
			}
			out = addRun(out, b.Group, id)
		}
	}
	return out
}

// joined returns what the segments cover of a group, ascending. Spans that adjoin are merged.
func joined(covered []spans, group uint32) []span {
	var all []span
	for _, r := range covered {
		if s := r.of(group); s != nil {
			all = append(all, *s)
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	out := all[:0]
	for _, s := range all {
		if n := len(out); n > 0 && s.first <= out[n-1].last {
			out[n-1].last = max(out[n-1].last, s.last)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// addRun appends a block. If it is adjacent to the last run, that run grows.
func addRun(runs []layout.Run, group, id uint32) []layout.Run {
	if n := len(runs); n > 0 && runs[n-1].Group == group && runs[n-1].First+runs[n-1].Count == id {
		runs[n-1].Count++
		return runs
	}
	return append(runs, layout.Run{Group: group, First: id, Count: 1})
}

// runsOf lists all blocks of the lists.
func runsOf(lists []layout.BlockList) []layout.Run {
	var out []layout.Run
	for _, b := range lists {
		for _, id := range b.IDs {
			if id != layout.NoBlock {
				out = addRun(out, b.Group, id)
			}
		}
	}
	return out
}
