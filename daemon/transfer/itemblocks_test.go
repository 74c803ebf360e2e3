package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestItemsLieInPagedBlocks: a token of an arena is a byte, and blocks of an opaque group have none: they are refused at either end before
// anything is found or reserved, whatever their layout says of a block's size.
func TestItemsLieInPagedBlocks(t *testing.T) {
	for _, size := range []uint32{0, 1} {
		l, err := layout.New([]layout.View{{
			Region: 1, NumBlocks: 4, BlockStride: 4096, ContentBytes: 4096, Kind: layout.Opaque, BlockSize: size, Part: "kv", Heads: 1, TotalHeads: 1,
		}}, []layout.Field{{Key: "kvpipe", Value: "bytes"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		e := newEnds(t, nil)
		tx := e.open(1, send)
		for s := transfer.SessionID(2); s <= 3; s++ {
			e.step(transfer.SessionOpened{Session: s, Engine: "e", Owner: "o", Role: transfer.Endpoint, Credits: 1000})
			e.step(transfer.LayoutSet{Session: s, Layout: l})
		}
		blocks := []layout.BlockList{{NTokens: 1000, IDs: []uint32{0}}}
		rx := e.submit(2, recv)
		e.is(e.submit(2, &transfer.GetOp{Target: rx, Match: transfer.MatchNext, Room: 1000, Timeout: 1e9, Blocks: blocks}), transfer.Failed, transfer.Invalid, "group 0 of the session's layout has kind 2 (opaque)")
		own := e.submit(3, &transfer.BindOp{Kind: transfer.BindOwn, Name: "b", Capacity: 1 << 14})
		e.is(e.submit(3, &transfer.PutOp{Target: own, Form: transfer.MatchAny, Bytes: 1000, Blocks: blocks}), transfer.Failed, transfer.Invalid, "group 0 of the session's layout has kind 2 (opaque)")
		e.put(1, tx, 0, 1000, "")
		if c := e.isDone(e.get(2, rx, 0, 0, 0)); !c.Short {
			t.Errorf("the item is not there for a get without blocks: %+v", c)
		}
	}
}

// TestBlocksOfAnItemAreItsBytes: no more of them, no fewer, and of the arena.
func TestBlocksOfAnItemAreItsBytes(t *testing.T) {
	two := append(blocksOf(0, 10), blocksOf(1, 10)...)
	later := blocksOf(0, 10)
	later[0].FirstToken = 1
	for want, op := range map[string]*transfer.PutOp{
		"id 5000 at position 0":            {Bytes: 10, Blocks: blocksOf(5000, 10)},
		"one list must cover the 20 bytes": {Bytes: 20, Blocks: blocksOf(0, 10)},
		"one list must cover the 10 bytes": {Bytes: 10, Blocks: two},
		"one list must cover the 0 bytes":  {Blocks: blocksOf(0, 10)},
		"one list must cover the 9 bytes":  {Bytes: 9},
		"cover the 10 bytes from 0":        {Bytes: 10, Blocks: later},
	} {
		e := newEnds(t, nil)
		tx := e.open(1, send)
		op.Target, op.Form = tx, transfer.MatchNext
		e.is(e.submit(1, op), transfer.Failed, transfer.Invalid, want)
	}
}
