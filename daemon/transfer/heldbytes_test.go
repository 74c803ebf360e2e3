package transfer_test

import (
	"runtime"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestHeldIsWhatIsKept: whatever a producer grants, with the plans that are made of it, the memory that this takes is about what is counted.
func TestHeldIsWhatIsKept(t *testing.T) {
	const blocks = 8192
	paged := func(n int, v layout.View) *layout.Layout {
		var views []layout.View
		for layer := range n {
			v.Base, v.Layer = uint64(layer)*v.NumBlocks*v.BlockStride, uint32(layer)
			views = append(views, v)
		}
		l, err := layout.New(views, []layout.Field{{Key: "model", Value: "m"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	view := layout.View{
		Region: 1, NumBlocks: 2 * blocks, BlockStride: 64, TokenStride: 64, HeadStride: 64, ContentBytes: 64, Kind: layout.Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv",
	}
	wide := view
	wide.NumBlocks, wide.BlockSize, wide.BlockStride = 1, layout.MaxBlockSize, 64*layout.MaxBlockSize
	scattered := make([]uint32, blocks)
	for i := range scattered {
		scattered[i] = uint32(2 * i)
	}
	for name, c := range map[string]struct {
		producer, consumer *layout.Layout
		src                layout.BlockList
	}{
		"nothing":        {paged(1, view), paged(1, view), layout.BlockList{}},
		"missing blocks": {paged(1, wide), paged(1, view), layout.BlockList{NTokens: layout.MaxBlockSize, IDs: []uint32{layout.NoBlock}}},
		"views":          {paged(160, view), paged(160, view), layout.BlockList{NTokens: 1, IDs: []uint32{7}}},
		"block ids":      {paged(1, view), paged(1, view), layout.BlockList{NTokens: blocks, IDs: scattered}},
	} {
		t.Run(name, func(t *testing.T) {
			const limit = 2 << 20 // 8 MiB
			m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }, MaxHeld: limit})
			m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1000})
			m.Step(1, transfer.LayoutSet{Session: 1, Layout: c.consumer})
			m.Step(1, transfer.PeerUp{Node: "b", Epoch: 1})
			m.Step(1, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgLayout{Layout: c.producer}})
			var x transfer.XferID
			for _, e := range m.Step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.TakeOp{
				Key: []byte("k"), Token: anyToken, Peer: "b", LayerSlot: transfer.NoSlot, Timeout: 60 * transfer.Second,
				Blocks: []layout.BlockList{{NTokens: blocks, IDs: scattered}},
			}}) {
				if s, ok := e.(transfer.Send); ok {
					if msg, ok := s.Msg.(*transfer.MsgTake); ok {
						x = msg.Xfer
					}
				}
			}
			var plans []*plan.Plan
			grant := func(seg uint32) {
				src := c.src
				src.IDs = append([]uint32(nil), src.IDs...)
				g := &transfer.MsgGrant{
					Xfer: x, Seg: seg, Incarnation: 1, Engine: "p", Transport: "tcp", Ranks: []transfer.RankRef{{Digest: c.producer.Digest()}}, Blocks: []layout.BlockList{src},
				}
				for _, e := range m.Step(1, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: g}) {
					e, ok := e.(transfer.MakePlan)
					if !ok {
						continue
					}
					p, err := plan.New(plan.Request{Producer: []plan.Rank{{Layout: c.producer, Blocks: e.Src}}, Consumer: []plan.Rank{{Layout: c.consumer, Blocks: e.Dst}}})
					if err != nil {
						t.Fatal(err)
					}
					plans = append(plans, p)
					g.Slices, g.Bytes = uint32(p.Slices()), p.Bytes()
					m.Step(1, transfer.Planned{Leg: e.Leg, Seg: e.Seg, Slices: g.Slices, Bytes: g.Bytes, Missing: p.Missing(), Size: uint32(p.Size())})
				}
			}
			grant(0)
			before, held := heapInUse(), m.HeldFor("b")
			for seg := uint32(1); seg < 4096 && m.Snapshot().Transfers[0].State == "moving"; seg++ {
				grant(seg)
			}
			kept, counted := heapInUse()-before, 4*(m.HeldFor("b")-held)
			if kept > counted*5/4 || counted > 3*kept+1<<20 {
				t.Errorf("%d segments keep %d bytes; %d are counted", len(plans), kept, counted)
			}
			t.Logf("%d segments keep %d bytes; %d are counted", len(plans), kept, counted)
			runtime.KeepAlive(plans)
		})
	}
}

// heapInUse is what lives on the heap, in bytes.
func heapInUse() int {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	return int(s.HeapAlloc)
}
