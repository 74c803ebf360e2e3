package hostile

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/test/cluster"
)

// arenaBytes is an end's memory, in which a token is a byte.
const arenaBytes = 64 << 10

// exchanges is an end of a pipe or lookup buffer that others of its kind meet, which puts and gets whatever comes to its mind: sizes,
// numbers and descriptions that cannot be, and records that are half right.
func exchanges(t *testing.T, n *cluster.Node, r *rand.Rand) {
	c := join(t, n, sessiontest.Options{Engine: "exchange", Role: transfer.Endpoint, SQ: 64, CQ: 256, Records: 1 << 20})
	if c == nil {
		return
	}
	defer end(c, r)
	region, _, err := c.Alloc(arenaBytes)
	if err == nil {
		err = c.SetLayout([]layout.View{{
			Region: region, NumBlocks: arenaBytes / 256, BlockStride: 256, TokenStride: 1, HeadStride: 1, ContentBytes: 1, Kind: layout.Paged,
			BlockSize: 256, Heads: 1, TotalHeads: 1, Part: "kv",
		}}, []layout.Field{{Key: "kvpipe", Value: "bytes"}}, 0)
	}
	if err != nil {
		t.Errorf("set up: %v", err)
		return
	}
	bind := &transfer.BindOp{Kind: transfer.BindKind(1 + r.IntN(4)), Name: "exchange", Peer: []string{"", "", "nobody"}[r.IntN(3)]}
	if bind.Kind == transfer.BindSend || bind.Kind == transfer.BindOwn {
		bind.Peer, bind.Capacity, bind.Linger = "", r.Uint64N(2*arenaBytes), transfer.Time(1+r.Int64N(1e8))
	}
	if _, err := c.Submit(bind); err != nil {
		return
	}
	for i := 0; i < 100 && c.Rings.Closed() == 0; i++ {
		e, rec := sessiontest.Encode(anyItem(r, bind.Kind))
		e.UserData = uint64(i) + 2
		if len(rec) >= 8 && r.IntN(4) == 0 {
			binary.LittleEndian.PutUint32(rec[r.IntN(len(rec)/4)*4:], r.Uint32()>>r.IntN(32))
		}
		if c.SubmitEntry(e, rec) != nil && c.Ping() != nil { // the queue is full until the daemon has looked
			return
		}
		for {
			if _, _, ok := c.Rings.Next(); !ok {
				break
			}
		}
	}
}

// anyItem draws what an end of that kind may ask for, mostly.
func anyItem(r *rand.Rand, kind transfer.BindKind) transfer.Op {
	target, form, size, puts := uint64(1), transfer.Match(1+r.IntN(7)), r.IntN(4)*r.IntN(2000), kind == transfer.BindSend || kind == transfer.BindOwn
	if kind < transfer.BindOwn && r.IntN(8) > 0 {
		form = transfer.MatchNext
	}
	if r.IntN(16) == 0 {
		target, puts = r.Uint64N(50), !puts
	}
	var key []byte
	var tokens []uint32
	switch form {
	case transfer.MatchKey:
		key = []byte{'k', byte('0' + r.IntN(4))}
	case transfer.MatchPrefix, transfer.MatchExact:
		tokens = []uint32{r.Uint32N(3), r.Uint32N(3), r.Uint32N(3)}[:1+r.IntN(3)]
	}
	var blocks []layout.BlockList
	if size > 0 {
		blocks = []layout.BlockList{{NTokens: uint32(size), IDs: make([]uint32, (size+255)/256)}}
		for i, first := uint32(0), r.Uint32N(arenaBytes/256); i < uint32(len(blocks[0].IDs)); i++ {
			blocks[0].IDs[i] = first + i
		}
	}
	if puts {
		return &transfer.PutOp{Target: target, Form: form, Bytes: uint64(size), Meta: make([]byte, r.IntN(9)*8), Key: key, Tokens: tokens, Blocks: blocks}
	}
	return &transfer.GetOp{
		Target: target, Match: form, Room: uint64(size), Seq: r.Uint64N(20), Key: key, Tokens: tokens, Timeout: transfer.Time(1 + r.Int64N(1e9)), Blocks: blocks,
	}
}
