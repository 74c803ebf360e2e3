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

// TestProgressDoesNotGoBack: what was written stays written, whatever a client says later.
func TestProgressDoesNotGoBack(t *testing.T) {
	w := newTaker(t, 0)
	w.step(transfer.Progress{Session: 1, Value: 5 << 16})
	w.step(transfer.Progress{Session: 1, Value: 3 << 16})
	_, x := w.take(5 << 16)
	w.piece(x, 0, 1, true, nil)
	if _, ok := w.said[x].(*transfer.MsgGo); !ok {
		t.Errorf("the rank was far enough, and b was told %+v", w.said[x])
	}
}

// TestLayersAreOfTheRankThatWritesThem one by one: another rank's blocks of the same offer, which are written all at once, go when they are.
func TestLayersAreOfTheRankThatWritesThem(t *testing.T) {
	a, l := newAsker(t, 0), oneRank(t)
	for rank := range uint32(2) {
		s := transfer.SessionID(rank + 1)
		a.step(transfer.SessionOpened{Session: s, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: rank, TPWorld: 2, Credits: 100})
		a.step(transfer.LayoutSet{Session: s, Layout: l})
	}
	for rank := range uint32(2) {
		a.step(transfer.Submit{Session: transfer.SessionID(rank + 1), UserData: 1, Op: &transfer.OfferOp{
			Key: []byte("k"), Token: anyToken, Sealed: true, Layered: rank == 1, After: 1 << 16, Blocks: someBlocks(0, 1),
		}})
	}
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	a.begins(1)
	a.step(transfer.Planned{Leg: transfer.Leg{Peer: "b", Epoch: 1, Xfer: 1, End: transfer.Producer}, Slices: 2, Bytes: 8192, Transport: "tcp", Marks: []transfer.Mark{{}, {First: 1, SrcRank: 1}}})
	posted := 0
	step := func(ev transfer.Event) {
		for _, e := range a.m.Step(a.now, ev) {
			if p, ok := e.(transfer.Post); ok {
				posted += len(p.Keys)
			}
		}
	}
	step(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgGo{Xfer: 1}})
	for _, c := range []struct {
		rank, progress uint64
		want           int
	}{{0, 1 << 16, 1}, {1, 1 << 16, 1}, {1, 1<<16 | 1, 2}} {
		if step(transfer.Progress{Session: transfer.SessionID(c.rank + 1), Value: c.progress}); posted != c.want {
			t.Errorf("rank %d is at %#x, and %d slices were posted, want %d", c.rank, c.progress, posted, c.want)
		}
	}
}
