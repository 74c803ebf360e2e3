package transfer_test

import (
	"runtime"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestLayoutsOfAPeerAreBounded: whoever tells of new layouts all the time has this node keep what the last of them take, and no more.
func TestLayoutsOfAPeerAreBounded(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	m.Step(1, transfer.PeerUp{Node: "b", Epoch: 1})
	before, most := heapInUse(), 0
	for i := range 1000 {
		m.Step(1, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: layoutMsg(withViews(t, uint64(i+1), 2000))})
		if i%50 == 49 {
			most = max(most, heapInUse()-before)
		}
	}
	if most > 80<<20 {
		t.Errorf("layouts of a peer take up to %d bytes", most)
	}
	t.Logf("layouts of a peer take up to %d bytes", most)
	runtime.KeepAlive(m)
}

// TestLayoutsThatWereSentAreBounded: engines that come and go, each with another layout, leave nothing for good behind a channel that stays.
func TestLayoutsThatWereSentAreBounded(t *testing.T) {
	w := newTaker(t, 0)
	for i := range uint64(5000) {
		s := transfer.SessionID(i + 10)
		w.step(transfer.SessionOpened{Session: s, Engine: "f", Role: transfer.Worker, Credits: 10})
		w.step(transfer.LayoutSet{Session: s, Layout: withViews(t, i+1, 1)})
		w.step(transfer.Submit{Session: s, UserData: i, Op: &transfer.TakeOp{Key: []byte("k"), Token: anyToken, Peer: "b", TakeID: i, LayerSlot: transfer.NoSlot, Blocks: someBlocks(0, 1)}})
		w.step(transfer.SessionClosed{Session: s})
	}
	if len(w.xfers) != 5000 {
		t.Fatalf("%d takes were asked for", len(w.xfers))
	}
	if n := w.m.Told("b"); n > 4096 {
		t.Errorf("%d layouts are remembered to have been sent, want 4096 at most", n)
	}
}

// TestLayoutsGoWithTheChannel: of a node that does not come back none are kept.
func TestLayoutsGoWithTheChannel(t *testing.T) {
	w := newTaker(t, 0)
	w.take(0)
	if known, told := w.m.Known("b"), w.m.Told("b"); known != 1 || told != 1 {
		t.Fatalf("%d layouts of b are known, and it was told %d; want one each", known, told)
	}
	w.step(transfer.PeerDown{Node: "b", Epoch: 1, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "lost"}})
	if known, told := w.m.Known("b"), w.m.Told("b"); known+told > 0 {
		t.Errorf("b is gone; %d layouts of it are kept, and %d that it was told", known, told)
	}
}

// TestALayoutThatRanksShareIsSentOnce: whoever asks for it asks with a few bytes, however many ranks have it.
func TestALayoutThatRanksShareIsSentOnce(t *testing.T) {
	a, l := newAsker(t, 0), oneRank(t)
	for rank := range uint32(2) {
		s := transfer.SessionID(rank + 1)
		a.step(transfer.SessionOpened{Session: s, Engine: "e", Instance: "i", Role: transfer.Worker, Rank: rank, TPWorld: 2, Credits: 100})
		a.step(transfer.LayoutSet{Session: s, Layout: l})
	}
	for rank := range uint32(2) {
		a.step(transfer.Submit{Session: transfer.SessionID(rank + 1), UserData: 1, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Sealed: true, Blocks: someBlocks(0, 1)}})
	}
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	a.begins(1)
	a.plans(1)
	for range 2 {
		a.later(10 * transfer.Second / 16)
		a.asks(&transfer.MsgNeedLayout{Xfer: 1, End: transfer.Consumer, Digests: [][32]byte{l.Digest(), l.Digest()}})
		sent := 0
		for _, msg := range a.said {
			if _, ok := msg.(*transfer.MsgLayout); ok {
				sent++
			}
		}
		if sent != 1 {
			t.Errorf("the layout was sent %d times", sent)
		}
	}
}
