package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestWhatMovesAtOnce: a small take of what was offered whole and is written, into blocks that are free. Everything else goes the usual way, which waits
// for what is missing, or refuses.
func TestWhatMovesAtOnce(t *testing.T) {
	offer := func(f func(o *transfer.OfferOp)) *transfer.OfferOp {
		o := &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Sealed: true, Blocks: someBlocks(0, 2)}
		f(o)
		return o
	}
	take := func(f func(in *transfer.TakeOp)) *transfer.TakeOp {
		in := &transfer.TakeOp{Key: []byte("k"), Token: anyToken, TakeID: 1, LayerSlot: transfer.NoSlot, Blocks: someBlocks(8, 2)}
		f(in)
		return in
	}
	as := offer(func(*transfer.OfferOp) {})
	for _, c := range []struct {
		what   string
		offer  *transfer.OfferOp
		before []transfer.Submit // what else is submitted before the take
		take   *transfer.TakeOp
		now    bool
	}{
		{"all is ready", as, nil, take(func(*transfer.TakeOp) {}), true},
		{"more may be offered", offer(func(o *transfer.OfferOp) { o.Sealed = false }), nil, take(func(*transfer.TakeOp) {}), false},
		{"it was offered in two pieces", offer(func(o *transfer.OfferOp) { o.Sealed = false }), []transfer.Submit{
			{Session: 1, UserData: 2, Op: &transfer.ExtendOp{Target: 1, Sealed: true, Blocks: []layout.BlockList{{FirstToken: 2, NTokens: 1, IDs: []uint32{2}}}}},
		}, take(func(*transfer.TakeOp) {}), false},
		{"it is not written", offer(func(o *transfer.OfferOp) { o.After = 1 << 16 }), nil, take(func(*transfer.TakeOp) {}), false},
		{"its layers are written one by one", offer(func(o *transfer.OfferOp) { o.Layered = true }), nil, take(func(*transfer.TakeOp) {}), false},
		{"it is large", offer(func(o *transfer.OfferOp) { o.Blocks = someBlocks(0, 5) }), nil, take(func(*transfer.TakeOp) {}), false},
		{"layers are to be told one by one", as, nil, take(func(in *transfer.TakeOp) { in.Layered = true }), false},
		{"a part alone is asked for", as, nil, take(func(in *transfer.TakeOp) { in.Parts = 2 }), false},
		{"it is at another node", as, nil, take(func(in *transfer.TakeOp) { in.Peer = "b" }), false},
		{"the consumer's own kernels still use the blocks", as, nil, take(func(in *transfer.TakeOp) { in.After = 1 << 16 }), false},
		{"a stranger asks", as, nil, take(func(in *transfer.TakeOp) { in.Token = make([]byte, len(anyToken)) }), false},
		{"a block is none of the layout", as, nil, take(func(in *transfer.TakeOp) { in.Blocks = someBlocks(63, 2) }), false},
		{"it is large itself", as, nil, take(func(in *transfer.TakeOp) { in.Blocks = someBlocks(8, 5) }), false},
		{"a take of that name is under way", as, []transfer.Submit{
			{Session: 2, UserData: 2, Op: &transfer.TakeOp{Key: []byte("later"), Token: anyToken, TakeID: 1, LayerSlot: transfer.NoSlot, Blocks: someBlocks(20, 1)}},
		}, take(func(*transfer.TakeOp) {}), false},
		{"the blocks are offered", as, []transfer.Submit{
			{Session: 2, UserData: 2, Op: &transfer.OfferOp{Key: []byte("other"), Token: anyToken, Sealed: true, Blocks: someBlocks(9, 1)}},
		}, take(func(*transfer.TakeOp) {}), false},
	} {
		t.Run(c.what, func(t *testing.T) {
			m := transfer.New(transfer.Config{Node: "a", AtOnce: 4, Random: func() uint64 { return 1 }})
			for s := transfer.SessionID(1); s <= 2; s++ {
				m.Step(1, transfer.SessionOpened{Session: s, Engine: []string{"", "p", "c"}[s], Role: transfer.Worker, Credits: 1000})
				m.Step(1, transfer.LayoutSet{Session: s, Layout: oneRank(t)})
			}
			for _, sub := range append([]transfer.Submit{{Session: 1, UserData: 1, Op: c.offer}}, c.before...) {
				m.Step(1, sub)
			}
			now := false
			for _, e := range m.Step(1, transfer.Submit{Session: 2, UserData: 10, Op: c.take}) {
				if _, ok := e.(*transfer.MoveNow); ok {
					now = true
				}
			}
			if now != c.now {
				t.Errorf("it moves at once: %v", now)
			}
		})
	}
}

// TestNothingMovesAtOnceWithoutRoomForItsEnd: neither while the ring is too full for a take, nor before answers that wait for it.
func TestNothingMovesAtOnceWithoutRoomForItsEnd(t *testing.T) {
	for credits := range 5 {
		m := transfer.New(transfer.Config{Node: "a", AtOnce: 4, Random: func() uint64 { return 1 }})
		for s := transfer.SessionID(1); s <= 2; s++ {
			m.Step(1, transfer.SessionOpened{Session: s, Engine: []string{"", "p", "c"}[s], Role: transfer.Worker, Credits: []int{0, 100, credits}[s]})
			m.Step(1, transfer.LayoutSet{Session: s, Layout: oneRank(t)})
		}
		m.Step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Sealed: true, Blocks: someBlocks(0, 2)}})
		moves := false
		for _, e := range m.Step(1, transfer.Submit{Session: 2, UserData: 1, Op: &transfer.TakeOp{
			Key: []byte("k"), Token: anyToken, TakeID: 1, LayerSlot: transfer.NoSlot, Blocks: someBlocks(8, 2),
		}}) {
			_, is := e.(*transfer.MoveNow)
			moves = moves || is
		}
		if moves != (credits >= transfer.MostCompletions) {
			t.Errorf("with room for %d completions, the take moves at once: %v", credits, moves)
		}
	}
}

// TestOfAnotherModelNothingMovesAtOnce: nor ever.
func TestOfAnotherModelNothingMovesAtOnce(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", AtOnce: 4, Random: func() uint64 { return 1 }})
	m.Step(1, transfer.SessionOpened{Session: 1, Engine: "p", Role: transfer.Worker, Credits: 100})
	m.Step(1, transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
	m.Step(1, transfer.SessionOpened{Session: 2, Engine: "c", Role: transfer.Worker, Credits: 100})
	m.Step(1, transfer.LayoutSet{Session: 2, Layout: otherModel(t)})
	m.Step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Sealed: true, Blocks: someBlocks(0, 2)}})
	refused := false
	for _, e := range m.Step(1, transfer.Submit{Session: 2, UserData: 1, Op: &transfer.TakeOp{
		Key: []byte("k"), Token: anyToken, TakeID: 1, LayerSlot: transfer.NoSlot, Blocks: someBlocks(8, 2),
	}}) {
		switch e := e.(type) {
		case *transfer.MoveNow, transfer.MakePlan:
			t.Errorf("it begins: %+v", e)
		case transfer.Complete:
			refused = e.Reason == transfer.Incompatible
		}
	}
	if !refused {
		t.Error("it was not refused")
	}
}

// otherModel is oneRank of another model.
func otherModel(tb testing.TB) *layout.Layout {
	l, err := layout.New(oneRank(tb).Views(), []layout.Field{{Key: "model", Value: "another"}}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}
