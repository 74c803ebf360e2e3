package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestRanksExtendInStep: the ranks' pieces with one number are one segment of a take. Tokens that one rank has in another segment than the others
// would be missing from theirs, and the take would end NOT_FOUND although every rank offered everything: the piece is refused.
func TestRanksExtendInStep(t *testing.T) {
	l := pagedAndState(t, 2)
	tokens := func(first, end uint32) []layout.BlockList {
		b := layout.BlockList{FirstToken: first, NTokens: end - first}
		for id := first / 2; id < (end+1)/2; id++ {
			b.IDs = append(b.IDs, id)
		}
		return []layout.BlockList{b}
	}
	within := func(at uint32) []layout.BlockList { // for no tokens: it names the block within which it begins
		return []layout.BlockList{{FirstToken: at, IDs: []uint32{at / 2}}}
	}
	state := func(lists []layout.BlockList) []layout.BlockList {
		return append(lists, layout.BlockList{Group: 1, NTokens: 1, IDs: []uint32{7}})
	}
	bare := func(lists []layout.BlockList) []layout.BlockList { // an opaque list's blocks count, whatever tokens it says that they stand for
		return append(lists, layout.BlockList{Group: 1, IDs: []uint32{7}})
	}
	type piece struct {
		rank   int
		blocks []layout.BlockList
	}
	for name, c := range map[string]struct {
		pieces []piece // each rank's first one is its offer
		want   string  // why the last one is refused; "": it is not
	}{
		"alike":                            {[]piece{{0, tokens(0, 8)}, {0, tokens(8, 16)}, {1, tokens(0, 8)}, {1, tokens(8, 16)}}, ""},
		"in turns":                         {[]piece{{0, tokens(0, 8)}, {1, tokens(0, 8)}, {1, tokens(8, 16)}, {0, tokens(8, 16)}}, ""},
		"one has fewer in the end":         {[]piece{{0, tokens(0, 8)}, {1, tokens(0, 8)}, {0, tokens(8, 16)}, {1, tokens(8, 12)}}, ""},
		"one has none of the second piece": {[]piece{{0, tokens(0, 8)}, {1, tokens(0, 8)}, {0, tokens(8, 16)}, {1, nil}, {0, nil}, {1, nil}}, ""},
		"one has fewer in its only piece":  {[]piece{{0, tokens(0, 8)}, {1, tokens(0, 4)}, {0, tokens(8, 16)}}, ""},
		"one has a piece for no tokens":    {[]piece{{0, tokens(0, 8)}, {1, tokens(0, 5)}, {1, within(5)}}, ""},
		"one begins with no tokens":        {[]piece{{0, within(7)}, {1, tokens(0, 2)}, {1, tokens(2, 4)}}, ""},
		"state with the same piece":        {[]piece{{0, tokens(0, 8)}, {1, tokens(0, 8)}, {0, state(tokens(8, 16))}, {1, state(tokens(8, 16))}}, ""},
		"one had fewer before": {
			[]piece{{0, tokens(0, 8)}, {1, tokens(0, 4)}, {1, tokens(4, 16)}},
			`key "k": group 0: piece 1 has tokens 4 to 16 here, and piece 0 has tokens 0 to 8 of all ranks; extend on every rank by the same tokens`,
		},
		"one had fewer before, and is faster": {
			[]piece{{1, tokens(0, 4)}, {1, tokens(4, 16)}, {0, tokens(0, 8)}},
			`key "k": group 0: piece 0 has tokens 0 to 8 here, and piece 1 has tokens 4 to 16 of all ranks`,
		},
		"one has more": {
			[]piece{{0, tokens(0, 4)}, {0, tokens(4, 8)}, {0, tokens(8, 16)}, {1, tokens(0, 4)}, {1, tokens(4, 16)}},
			`group 0: piece 1 has tokens 4 to 16 here, and piece 2 has tokens 8 to 16 of all ranks`,
		},
		"one begins later": {
			[]piece{{0, tokens(0, 8)}, {1, nil}, {1, tokens(0, 8)}},
			`group 0: piece 1 has tokens 0 to 8 here, and piece 0 has tokens 0 to 8 of all ranks`,
		},
		"one begins later, and another has that in a later piece": {
			[]piece{{0, tokens(0, 8)}, {1, tokens(4, 8)}, {2, nil}, {2, tokens(0, 4)}},
			`group 0: piece 1 has tokens 0 to 4 here, and piece 0 has tokens 0 to 8 of all ranks`,
		},
		"one ends earlier, and another has that in a later piece": {
			[]piece{{0, tokens(0, 8)}, {1, tokens(0, 4)}, {2, tokens(0, 4)}, {2, tokens(4, 8)}},
			`group 0: piece 1 has tokens 4 to 8 here, and piece 0 has tokens 0 to 8 of all ranks`,
		},
		"state with a later piece": {
			[]piece{{0, state(tokens(0, 8))}, {1, tokens(0, 8)}, {1, state(tokens(8, 16))}},
			`key "k": group 1 is opaque, and has its blocks in piece 1 here and in piece 0 at another rank; give them with the same piece on every rank`,
		},
		"state of no tokens with a later piece": {
			[]piece{{0, bare(tokens(0, 8))}, {1, tokens(0, 8)}, {1, bare(tokens(8, 16))}},
			`key "k": group 1 is opaque, and has its blocks in piece 1 here and in piece 0 at another rank; give them with the same piece on every rank`,
		},
		"state of no tokens with an earlier piece": {
			[]piece{{0, tokens(0, 8)}, {0, bare(tokens(8, 16))}, {1, state(tokens(0, 8))}},
			`group 1 is opaque, and has its blocks in piece 0 here and in piece 1 at another rank`,
		},
		"state with an earlier piece": {
			[]piece{{0, tokens(0, 8)}, {0, state(tokens(8, 16))}, {1, state(tokens(0, 8))}},
			`group 1 is opaque, and has its blocks in piece 0 here and in piece 1 at another rank`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnds(t, nil)
			for rank := range uint32(3) {
				s := transfer.SessionID(rank + 1)
				e.step(transfer.SessionOpened{Session: s, Engine: "p", Instance: "i", Role: transfer.Worker, Rank: rank, TPWorld: 3, Credits: 100})
				e.step(transfer.LayoutSet{Session: s, Layout: l})
			}
			offers := map[int]uint64{}
			for i, p := range c.pieces {
				s := transfer.SessionID(p.rank + 1)
				target, extends := offers[p.rank]
				if p.blocks == nil {
					p.blocks = []layout.BlockList{{Group: 1}} // a piece, but of nothing
				}
				var op uint64
				if extends {
					op = e.submit(s, &transfer.ExtendOp{Target: target, Blocks: p.blocks})
				} else {
					op = e.submit(s, &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Blocks: p.blocks})
					offers[p.rank] = op
				}
				switch {
				case i == len(c.pieces)-1 && c.want != "":
					e.is(op, transfer.Failed, transfer.Invalid, c.want)
				case extends:
					e.isDone(op)
				default:
					e.runs(op)
				}
			}
		})
	}
}
