package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestOpaqueBlocksAreOfferedOnce: with whichever piece. The lists of opaque groups pair by position, so a take's blocks would be written by
// both, and hold what came last.
func TestOpaqueBlocksAreOfferedOnce(t *testing.T) {
	l := pagedAndState(t, 1)
	piece := func(token uint32, state ...uint32) []layout.BlockList {
		return []layout.BlockList{{FirstToken: token, NTokens: 1, IDs: []uint32{token}}, {Group: 1, FirstToken: token, NTokens: 1, IDs: state}}
	}
	without := func(token uint32) []layout.BlockList { return piece(token)[:1] }
	for name, pieces := range map[string][][]layout.BlockList{
		"the first":                             {piece(0, 7), without(1)},
		"the last":                              {without(0), piece(1, 7)},
		"the last, the first has an empty list": {piece(0), piece(1, 7)},
		"the first, the last has an empty list": {piece(0, 7), piece(1)},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnds(t, nil)
			e.step(transfer.SessionOpened{Session: 1, Engine: "p", Role: transfer.Worker, Credits: 100})
			e.step(transfer.LayoutSet{Session: 1, Layout: l})
			offer := e.submit(1, &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Blocks: pieces[0]})
			e.isDone(e.submit(1, &transfer.ExtendOp{Target: offer, Blocks: pieces[1]}))
			e.is(e.submit(1, &transfer.ExtendOp{Target: offer, Blocks: piece(2, 8)}), transfer.Failed, transfer.Invalid,
				`group 1 is opaque, and the offer of key "k" has its blocks already; give them once`)
			e.isDone(e.submit(1, &transfer.ExtendOp{Target: offer, Blocks: without(2), Sealed: true}))
			e.runs(offer)
		})
	}
}

// pagedAndState is the layout of a rank with 64 blocks of so many tokens in group 0, and 64 of state in group 1.
func pagedAndState(t *testing.T, tokens uint32) *layout.Layout {
	l, err := layout.New([]layout.View{
		{Region: 1, NumBlocks: 64, BlockStride: 64 * uint64(tokens), TokenStride: 64, HeadStride: 64, ContentBytes: 64, Kind: layout.Paged, BlockSize: tokens, Heads: 1, TotalHeads: 1, Part: "kv"},
		{Region: 2, NumBlocks: 64, BlockStride: 64, ContentBytes: 64, Kind: layout.Opaque, Group: 1, Heads: 1, TotalHeads: 1, Part: "ssm"},
	}, []layout.Field{{Key: "model", Value: "m"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
