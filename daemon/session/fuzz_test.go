package session

import (
	"reflect"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// FuzzControl feeds datagrams to everything that decodes control messages.
func FuzzControl(f *testing.F) {
	seed := func(kind uint16, body []byte) {
		f.Add(append(ring.Append(nil, &ring.Ctl{Magic: ring.Magic, Type: kind, Len: uint32(len(body)), Seq: 1}), body...))
	}
	hello := ring.Hello{ABIMin: 1, ABIMax: 1, Role: 1, TPRank: 1, TPWorld: 2, SQEntries: 64}
	copy(hello.Engine[:], "engine")
	seed(ring.CtlHello, ring.Append(nil, &hello))
	seed(ring.CtlRegister, ring.Append(nil, &ring.Register{Bytes: 4096, Kind: 1}))
	seed(ring.CtlUnregister, ring.Append(nil, &ring.Unregister{Region: 1 << 32}))
	seed(ring.CtlInvalidate, ring.Append(nil, &ring.Unregister{Region: 1 << 32}))
	seed(ring.CtlRevalidate, ring.Append(nil, &ring.Revalidate{Region: 1 << 32}))
	view := ring.View{Region: 1 << 32, NumBlocks: 4, BlockStride: 64, TokenStride: 4, HeadStride: 2, ContentBytes: 2, Kind: 1, BlockSize: 16, Heads: 2, TotalHeads: 2}
	copy(view.Part[:], "kv")
	piece := ring.Append(ring.Append(nil, &ring.LayoutMsg{Flags: 1, NViews: 1, NFields: 1, TotalViews: 1}), &view)
	seed(ring.CtlLayout, append(piece, 5, 0, 1, 0, 'm', 'o', 'd', 'e', 'l', 'x'))
	seed(ring.CtlPing, nil)
	seed(ring.CtlBye, nil)

	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			return
		}
		switch m.kind {
		case ring.CtlHello:
			var h ring.Hello
			if _, err := ring.Decode(m.body, &h, "hello"); err != nil {
				return
			}
			var who identity
			who.Role = transfer.Role(h.Role)
			if who.setRank(&h) == nil && who.Rank != ring.NoRank && who.Rank >= who.TPWorld*who.PPWorld {
				t.Errorf("rank %d of %d x %d", who.Rank, who.TPWorld, who.PPWorld)
			}
			if name, err := ring.String(h.Engine[:], "engine"); err == nil && len(name) > len(h.Engine) {
				t.Errorf("engine %q", name)
			}
			if sizes, err := ringSizes(&h); err == nil {
				if g, err := ring.NewGeometry(sizes); err == nil && (g.CBytes > 1<<27 || g.DBytes > 1<<28) {
					t.Errorf("rings of %d and %d bytes", g.CBytes, g.DBytes)
				}
			}
		case ring.CtlLayout:
			var a assembly
			commit, err := a.add(m.body)
			if err == nil && (len(a.views) > layout.MaxViews || len(a.fields) > layout.MaxFingerprint || commit && uint32(len(a.views)) != a.total) {
				t.Errorf("%d views of %d, %d fields", len(a.views), a.total, len(a.fields))
			}
			if err == nil && commit {
				_, _ = layout.New(a.views, a.fields, func(layout.RegionID) (uint64, bool) { return 1 << 20, true })
			}
		case ring.CtlRegister:
			var r ring.Register
			_, _ = ring.Decode(m.body, &r, "register")
		case ring.CtlUnregister, ring.CtlInvalidate:
			var u ring.Unregister
			_, _ = ring.Decode(m.body, &u, "unregister")
		case ring.CtlRevalidate:
			var r ring.Revalidate
			_, _ = ring.Decode(m.body, &r, "revalidate")
		}
	})
}

// FuzzSubmission feeds entries and records to the decoder: what it accepts keeps the header's limits, whatever came in.
func FuzzSubmission(f *testing.F) {
	offer := ring.Append(nil, &ring.RecOffer{Flags: 1, Consumers: 1, KeyLen: 3, TokenLen: 16, ContentLen: 1, TraceLen: 2, NGroups: 1})
	offer = append(offer, "key0123456789abcdefctr\x00\x00"...)
	group := ring.Append(nil, &ring.RecGroup{NTokens: 32, Form: ring.FormIDs, Count: 2})
	group = append(group, 1, 0, 0, 0, 2, 0, 0, 0)
	take := ring.Append(nil, &ring.RecTake{Parts: 1, TakeID: 1, KeyLen: 3, TokenLen: 16, PeerLen: 5, NGroups: 1})
	take = append(take, "key0123456789abcdefnodeb"...)
	runs := ring.Append(nil, &ring.RecGroup{Group: 1, NTokens: 32, Form: ring.FormRuns, Count: 1})
	runs = append(runs, 0xff, 0xff, 0xff, 0xff, 9, 0, 0, 0)
	key := append(ring.Append(nil, &ring.RecKey{KeyLen: 8, TokenLen: 16}), "key012340123456789abcdef"...)
	extend := append(ring.Append(nil, &ring.RecExtend{NGroups: 1}), group...)
	bind := append(ring.Append(nil, &ring.RecBind{Kind: ring.BindSend, Capacity: 1 << 20, NameLen: 4, TokenLen: 16, LingerNS: 1}), "pipe0123456789abcdef\x00\x00\x00\x00"...)
	recv := append(ring.Append(nil, &ring.RecBind{Kind: ring.BindRecv, NameLen: 4, PeerLen: 4}), "pipenode"...)
	some := append(ring.Append(nil, &ring.RecGroup{NTokens: 32, Form: ring.FormIDs, Count: 2}), 1, 0, 0, 0, 2, 0, 0, 0)
	put := append(ring.Append(nil, &ring.RecPut{Form: ring.MatchPrefix, Bytes: 32, MetaLen: 8, NTokens: 2, NGroups: 1}), "metameta\x01\x00\x00\x00\x02\x00\x00\x00"...)
	get := append(ring.Append(nil, &ring.RecGet{Match: ring.MatchKey, Room: 32, KeyLen: 3, NGroups: 1}), "key\x00\x00\x00\x00\x00"...)
	next := ring.Append(nil, &ring.RecGet{Match: ring.MatchNext, Seq: 3})
	for _, s := range []struct {
		op     uint8
		target uint64
		rec    []byte
	}{
		{ring.OpBind, 0, bind}, {ring.OpBind, 0, recv}, {ring.OpPut, 1, append(put, some...)}, {ring.OpGet, 1, append(get, some...)}, {ring.OpGet, 1, next},
		{ring.OpNop, 0, nil}, {ring.OpOffer, 0, append(offer, group...)}, {ring.OpExtend, 1, extend}, {ring.OpSeal, 1, nil},
		{ring.OpTake, 0, append(take, runs...)}, {ring.OpWatch, 0, key}, {ring.OpDrop, 0, key}, {ring.OpCancel, 9, nil}, {99, 0, nil},
	} {
		e := make([]byte, ring.SQESize)
		(&ring.SQE{Op: s.op, UserData: 1, Target: s.target, LayerSlot: ring.NoSlot, RecLen: uint32(len(s.rec))}).Store(e)
		f.Add(e, s.rec)
		if op, err := Decode(loaded(e), s.rec, 8); (err != nil) != (s.op == 99) || op == nil && s.op != ring.OpNop && s.op != 99 {
			f.Fatalf("seed of operation %d: %v, %v", s.op, op, err)
		}
	}
	f.Fuzz(func(t *testing.T, entry, rec []byte) {
		if len(entry) < ring.SQESize {
			return
		}
		before := append([]byte(nil), rec...)
		op, err := Decode(loaded(entry), rec, 8)
		if err != nil {
			if c := causeOf(err); c.Reason != transfer.Invalid || c.Text == "" {
				t.Errorf("refused with %+v", c)
			}
			return
		}
		check(t, op)
		// The result must not change with the memory it came from.
		again, _ := Decode(loaded(entry), before, 8)
		clear(rec)
		if !reflect.DeepEqual(op, again) {
			t.Error("the operation shares memory with its record")
		}
	})
}

func loaded(b []byte) *ring.SQE {
	var e ring.SQE
	e.Load(b)
	return &e
}

// check holds an accepted operation against the header's limits.
func check(t *testing.T, op transfer.Op) {
	between := func(name string, n, least, most int) {
		if n < least || n > most {
			t.Errorf("%s is %d of %d to %d", name, n, least, most)
		}
	}
	switch o := op.(type) {
	case *transfer.OfferOp:
		between("key", len(o.Key), 1, maxKey)
		between("token", len(o.Token), minToken, maxToken)
		between("content", len(o.Content), 0, maxContent)
		between("trace", len(o.Trace), 0, maxTrace)
		between("consumers", o.Consumers, 1, maxConsumers)
		checkBlocks(t, o.Blocks)
	case *transfer.ExtendOp:
		checkBlocks(t, o.Blocks)
	case *transfer.TakeOp:
		between("key", len(o.Key), 1, maxKey)
		between("token", len(o.Token), minToken, maxToken)
		between("peer", len(o.Peer), 0, maxPeer)
		between("parts", o.Parts, 1, maxConsumers)
		between("part", o.Part, 0, o.Parts-1)
		if o.Timeout <= 0 || o.Timeout > maxTimeout || o.LayerSlot != ring.NoSlot && o.LayerSlot >= 8 || o.TakeID == 0 {
			t.Errorf("take %+v", o)
		}
		checkBlocks(t, o.Blocks)
	case *transfer.BindOp:
		between("name", len(o.Name), 1, ring.MaxName)
		between("kind", int(o.Kind), ring.BindSend, ring.BindSelect)
		between("peer", len(o.Peer), 0, maxPeer)
		if n := len(o.Token); n > maxToken || n > 0 && n < minToken || o.Linger < 0 || o.Linger > maxTimeout {
			t.Errorf("bind %+v", o)
		}
	case *transfer.PutOp:
		between("form", int(o.Form), ring.MatchNext, ring.MatchKey)
		between("meta", len(o.Meta), 0, ring.MaxMeta)
		checkSoughtOp(t, o.Form, o.Key, o.Tokens, o.Blocks, o.Bytes)
	case *transfer.GetOp:
		between("match", int(o.Match), ring.MatchNext, ring.MatchDecline)
		checkSoughtOp(t, o.Match, o.Key, o.Tokens, o.Blocks, o.Room)
		if o.Timeout <= 0 || o.Timeout > maxTimeout {
			t.Errorf("timeout %d", o.Timeout)
		}
	case *transfer.WatchOp:
		between("key", len(o.Key), 1, maxKey)
		if o.Timeout <= 0 {
			t.Errorf("timeout %d", o.Timeout)
		}
	}
}

// checkSoughtOp: what an item is found by, and the blocks that cover its bytes.
func checkSoughtOp(t *testing.T, m transfer.Match, key []byte, tokens []uint32, blocks []layout.BlockList, size uint64) {
	byTokens := m == transfer.MatchPrefix || m == transfer.MatchExact
	if (m == transfer.MatchKey) != (len(key) > 0) || len(key) > maxKey || byTokens != (len(tokens) > 0) || len(tokens) > ring.MaxTokens {
		t.Errorf("match %d by a key of %d bytes and %d tokens", m, len(key), len(tokens))
	}
	checkBlocks(t, blocks)
	if len(blocks) > 1 || (len(blocks) == 1) != (size > 0) || len(blocks) == 1 && (blocks[0].FirstToken != 0 || uint64(blocks[0].NTokens) != size) {
		t.Errorf("%d lists for %d bytes", len(blocks), size)
	}
}

func checkBlocks(t *testing.T, lists []layout.BlockList) {
	total, seen := 0, map[uint32]bool{}
	for _, l := range lists {
		total += len(l.IDs)
		if seen[l.Group] || l.Group >= layout.MaxGroups || l.FirstToken+l.NTokens < l.FirstToken {
			t.Errorf("group %d, tokens %d + %d", l.Group, l.FirstToken, l.NTokens)
		}
		seen[l.Group] = true
	}
	if total > layout.MaxIDs {
		t.Errorf("%d ids", total)
	}
}

// FuzzBlockList feeds block lists to their decoder alone, where the fuzzer gets further.
func FuzzBlockList(f *testing.F) {
	ids := append(ring.Append(nil, &ring.RecGroup{NTokens: 40, Form: ring.FormIDs, Count: 3}), make([]byte, 16)...)
	runs := append(ring.Append(nil, &ring.RecGroup{Group: 3, Form: ring.FormRuns, Count: 2}), 1, 0, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0)
	huge := append(ring.Append(nil, &ring.RecGroup{Form: ring.FormRuns, Count: 1}), 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff)
	f.Add(ids, uint32(1))
	f.Add(runs, uint32(1))
	f.Add(append(append([]byte(nil), ids...), runs...), uint32(2))
	f.Add(huge, uint32(1))
	f.Add([]byte{}, uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, n uint32) {
		lists, err := DecodeBlocks(b, n)
		if err != nil {
			return
		}
		if len(lists) != int(n) {
			t.Errorf("%d lists, want %d", len(lists), n)
		}
		checkBlocks(t, lists)
	})
}

// BenchmarkDecode is what a large offer costs before the machine sees it.
func BenchmarkDecode(b *testing.B) {
	const n = 262144
	rec := ring.Append(nil, &ring.RecOffer{Consumers: 1, KeyLen: 8, TokenLen: 16, NGroups: 1})
	rec = append(rec, "key012340123456789abcdef"...)
	rec = ring.Append(rec, &ring.RecGroup{NTokens: n, Form: ring.FormIDs, Count: n})
	for i := range uint32(n) {
		rec = le.AppendUint32(rec, i*7)
	}
	e := &ring.SQE{Op: ring.OpOffer, UserData: 1}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(e, rec, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/id")
}
