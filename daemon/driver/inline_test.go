package driver

import (
	"bytes"
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/internal/reuse"
)

// TestPayloadsAreReused: what rides inside a grant stays what it is until its leg is forgotten, since the grant may be
// repeated until then. After that its buffer is used again, and so is the one of a payload that was written.
func TestPayloadsAreReused(t *testing.T) {
	const size = 4096
	c := &clients{mem: map[transfer.SessionID][]byte{1: bytes.Repeat([]byte{7}, size), 2: make([]byte, size)}}
	l, err := layout.New([]layout.View{{
		Region: 1, NumBlocks: 1, BlockStride: size, TokenStride: size / 16, HeadStride: size / 16, ContentBytes: size / 16, Kind: layout.Paged, BlockSize: 16, Heads: 1, TotalHeads: 1, Part: "kv",
	}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := New(Config{Sessions: c, Inline: size, PlanInline: 1 << 20, Payloads: new(reuse.Buffers)})
	blocks := []layout.BlockList{{NTokens: 16, IDs: []uint32{0}}}
	ranks := func(s transfer.SessionID) []transfer.RankLayout {
		return []transfer.RankLayout{{Session: s, Layout: l}}
	}
	leg := func(n int, end transfer.End) transfer.Leg {
		return transfer.Leg{Peer: "b", Xfer: transfer.XferID(n), End: end}
	}
	made := func(id transfer.Leg, seg uint32) {
		t.Helper()
		d.makePlan(transfer.MakePlan{Leg: id, Seg: seg, Producer: ranks(1), Consumer: ranks(2), Src: blocks, Dst: blocks})
		if ev, ok := d.own[0].(transfer.Planned); !ok || ev.Slices != 1 { // that no transport reaches b does not matter here
			t.Fatalf("%+v", d.own)
		}
		d.own = d.own[:0]
	}
	try := func(n int, seg uint32) transfer.InlineRead {
		t.Helper()
		id := leg(n, transfer.Producer)
		made(id, seg)
		d.readInline(transfer.ReadInline{Leg: id, Seg: seg})
		ev := d.own[0].(transfer.InlineRead)
		d.own = d.own[:0]
		return ev
	}
	read := func(n int, seg uint32) transfer.InlineRead {
		t.Helper()
		ev := try(n, seg)
		if ev.Cause.Reason != transfer.OK {
			t.Fatal(ev.Cause)
		}
		return ev
	}
	same := func(a, b []byte) bool { return &a[0] == &b[0] }

	first, later := read(1, 0), read(1, 1)
	c.mem[1][0] = 8
	second := read(2, 0)
	if same(first.Data, second.Data) || same(first.Data, later.Data) || first.Data[0] != 7 || later.Data[0] != 7 || second.Data[0] != 8 {
		t.Fatalf("what was read as 7, 7 and 8 is %d, %d and %d now", first.Data[0], later.Data[0], second.Data[0])
	}
	d.forget(leg(1, transfer.Producer))
	again := [][]byte{read(3, 0).Data, read(3, 1).Data}
	for _, was := range [][]byte{first.Data, later.Data} {
		if !slices.ContainsFunc(again, func(b []byte) bool { return same(b, was) }) || !bytes.Equal(was, c.mem[1]) {
			t.Error("the buffer of a forgotten leg is not used again, or not for the bytes that are there now")
		}
	}

	in := leg(4, transfer.Consumer)
	made(in, 0)
	d.writeInline(transfer.WriteInline{Leg: in, Data: second.Data, CRC: second.CRC})
	if ev := d.own[0].(transfer.InlineWritten); ev.Cause.Reason != transfer.OK || c.mem[2][0] != 8 {
		t.Fatalf("%+v, %d", ev, c.mem[2][0])
	}
	d.own = d.own[:0]
	if !same(read(5, 0).Data, second.Data) {
		t.Error("the buffer of a payload that was written is not used again")
	}

	spare := make([]byte, size)
	d.cfg.Payloads.Put(spare)
	kept := c.mem[1]
	c.mem[1] = nil
	if ev := try(6, 0); ev.Cause.Reason != transfer.Corrupt || ev.Data != nil {
		t.Errorf("of memory that is gone: %v, %d bytes", ev.Cause, len(ev.Data))
	}
	c.mem[1] = kept
	if !same(read(7, 0).Data, spare) {
		t.Error("the buffer of a reading that failed is not used again")
	}
}

// reaching is a transport that reaches every node.
type reaching struct{ transport.Transport }

func (reaching) Name() string                 { return "reaching" }
func (reaching) Probe(string) transport.Reach { return transport.Reach{OK: true} }

// TestTinyPiecesDoNotRideInTheGrant: everybody waits while a payload is gathered, and while it is scattered.
func TestTinyPiecesDoNotRideInTheGrant(t *testing.T) {
	const n = 32 << 10
	ids := make([]uint32, n/2)
	for i := range ids {
		ids[i] = uint32(2 * i)
	}
	for content, want := range map[uint64]bool{1: false, 2: false, 128: true} {
		list := ids[:min(n/2, n/content)]
		l, err := layout.New([]layout.View{{
			Region: 1, NumBlocks: n, BlockStride: content, TokenStride: content, HeadStride: content, ContentBytes: content, Kind: layout.Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv",
		}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := New(Config{Sessions: &clients{}, Peers: new(nobody), Transports: []transport.Transport{reaching{}}, Inline: n, PlanInline: 1 << 20})
		rank, blocks := []transfer.RankLayout{{Layout: l}}, []layout.BlockList{{NTokens: uint32(len(list)), IDs: list}}
		d.makePlan(transfer.MakePlan{Leg: transfer.Leg{Peer: "b", End: transfer.Producer}, Producer: rank, Consumer: rank, Src: blocks, Dst: blocks})
		if ev, ok := d.own[0].(transfer.Planned); !ok || ev.Cause.Reason != transfer.OK || ev.Inline != want {
			t.Errorf("%d pieces of %d bytes: %+v", len(list), content, d.own[0])
		}
	}
}
