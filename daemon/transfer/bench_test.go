package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// oneRank is a layout of one layer with blocks of one token of 4 KiB.
func oneRank(tb testing.TB) *layout.Layout {
	l, err := layout.New([]layout.View{{
		Region: 1, NumBlocks: 64, BlockStride: 4096, TokenStride: 4096, HeadStride: 4096, ContentBytes: 4096,
		Kind: layout.Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv",
	}}, []layout.Field{{Key: "model", Value: "m"}}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// BenchmarkLocal is the machine's part of an offer of 4 KiB, its take within the node, and the release of both.
func BenchmarkLocal(b *testing.B) {
	n := uint64(0)
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { n++; return n }})
	l := oneRank(b)
	for s, name := range []string{"prefill", "decode"} {
		id := transfer.SessionID(s + 1)
		m.Step(1, transfer.SessionOpened{Session: id, Engine: name, Role: transfer.Worker, Credits: 1 << 40})
		m.Step(1, transfer.LayoutSet{Session: id, Layout: l})
	}
	key, token := []byte("request"), []byte("0123456789abcdef")
	blocks := []layout.BlockList{{NTokens: 1, IDs: []uint32{7}}}
	var queue []transfer.Event
	done := 0
	run := func(now transfer.Time, ev transfer.Event) {
		queue = append(queue[:0], ev)
		for i := 0; i < len(queue); i++ {
			for _, e := range m.Step(now, queue[i]) {
				switch e := e.(type) {
				case transfer.MakePlan:
					queue = append(queue, transfer.Planned{Leg: e.Leg, Seg: e.Seg, Transport: "local", Slices: 1, Bytes: 4096})
				case transfer.Post:
					landed := e.Keys[0]
					landed.End = transfer.Consumer
					queue = append(queue, transfer.SliceSent{Key: e.Keys[0]}, transfer.SliceLanded{Key: landed})
				case transfer.Fence:
					queue = append(queue, transfer.Fenced{Leg: e.Leg})
				case transfer.Complete:
					if e.Status != transfer.Done || e.More {
						b.Fatalf("%+v", e)
					}
					done++
				}
			}
		}
	}
	b.ReportAllocs()
	for i := range b.N {
		now := transfer.Time(i + 2)
		run(now, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.OfferOp{Key: key, Token: token, Sealed: true, Blocks: blocks}})
		run(now, transfer.Submit{Session: 2, UserData: 1, Op: &transfer.TakeOp{Key: key, Token: token, TakeID: uint64(i), LayerSlot: transfer.NoSlot, Blocks: blocks}})
	}
	if done != 2*b.N {
		b.Fatalf("%d completions of %d hand-overs", done, b.N)
	}
}

// BenchmarkSenderEnds is the end of a sender, and of its linger, with 262,139 items that nobody received. Nobody else is served
// meanwhile.
func BenchmarkSenderEnds(b *testing.B) {
	const items = 262139
	n := uint64(0)
	for range b.N {
		b.StopTimer()
		m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { n++; return n }, MaxItems: items, MaxPipes: 1, PipeLinger: 1, MaxLease: transfer.Second})
		m.Step(1, transfer.SessionOpened{Session: 1, Engine: "prefill", Role: transfer.Endpoint, Credits: 1 << 40})
		m.Step(1, transfer.LayoutSet{Session: 1, Layout: oneRank(b)})
		m.Step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindSend, Name: "p", Capacity: 1 << 30}})
		for i := range uint64(items) {
			m.Step(1, transfer.Submit{Session: 1, UserData: 2 + i, Op: &transfer.PutOp{Target: 1, Form: transfer.MatchNext}})
		}
		if i := m.Snapshot(); len(i.Pipes) != 1 || i.Pipes[0].Items != items {
			b.Fatalf("%+v", i.Pipes)
		}
		b.StartTimer()
		m.Step(2, transfer.SessionClosed{Session: 1, Cause: transfer.Cause{Reason: transfer.Closed}})
		m.Step(transfer.Second, transfer.Tick{})
		b.StopTimer()
		if i := m.Snapshot(); len(i.Pipes) != 0 {
			b.Fatalf("%+v", i.Pipes)
		}
		b.StartTimer()
	}
}
