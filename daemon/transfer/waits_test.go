package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestOneWaitForProgress: a take of an offer of many pieces, each ready at another time, waits once for its rank, and is looked at once when
// several become ready together. Each piece goes when it is ready, and none before.
func TestOneWaitForProgress(t *testing.T) {
	const pieces = 8
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 << 40 }})
	posted := 0
	step := func(ev transfer.Event) {
		queue := []transfer.Event{ev}
		for i := 0; i < len(queue); i++ {
			for _, e := range m.Step(1, queue[i]) {
				switch e := e.(type) {
				case transfer.MakePlan:
					queue = append(queue, transfer.Planned{Leg: e.Leg, Seg: e.Seg, Transport: "tcp", Slices: 1, Bytes: 4096})
				case transfer.Post:
					posted += len(e.Keys)
				}
			}
		}
	}
	l := oneRank(t)
	blocks := func(first uint32) []layout.BlockList {
		return []layout.BlockList{{FirstToken: first, NTokens: 1, IDs: []uint32{first}}}
	}
	step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1000})
	step(transfer.LayoutSet{Session: 1, Layout: l})
	step(transfer.Submit{Session: 1, UserData: 50, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Consumers: 1, After: 1 << 16, Blocks: blocks(0)}})
	for i := uint32(1); i < pieces; i++ {
		step(transfer.Submit{Session: 1, UserData: 50 + uint64(i), Op: &transfer.ExtendOp{Target: 50, After: uint64(i+1) << 16, Sealed: i == pieces-1, Blocks: blocks(i)}})
	}
	step(transfer.PeerUp{Node: "b", Epoch: 1})
	say := func(msg transfer.Msg) { step(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: msg}) }
	say(layoutMsg(l))
	take := takeOf(1, l)
	take.Blocks = []layout.BlockList{{NTokens: pieces, IDs: layout.Adjacent(0, pieces)}}
	say(take)
	for i := pieces; i > 0; i-- { // the last first
		say(&transfer.MsgGo{Xfer: 1, Seg: uint32(i - 1)})
	}
	if posted > 0 || m.Waits(1) != 1 {
		t.Fatalf("%d pieces went before they were ready, and there are %d waits", posted, m.Waits(1))
	}
	for _, ready := range []int{1, 2, 5, 8} {
		step(transfer.Progress{Session: 1, Value: uint64(ready) << 16})
		if posted != ready {
			t.Errorf("%d pieces are ready, and %d went", ready, posted)
		}
	}
	if n := m.Waits(1); n != 0 {
		t.Errorf("%d waits are left", n)
	}
}
