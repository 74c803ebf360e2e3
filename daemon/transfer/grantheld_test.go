package transfer_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// taker is a machine whose worker takes from node b, which grants whatever the test likes.
type taker struct {
	tb     testing.TB
	m      *transfer.Machine
	now    transfer.Time
	users  uint64
	ends   map[uint64]transfer.Complete
	said   map[transfer.XferID]transfer.Msg // the last that b was told of a transfer
	xfers  []transfer.XferID
	inline int            // bytes that are written
	layers uint32         // that are said to be in place
	fences []transfer.Leg // not answered yet
}

func newTaker(tb testing.TB, maxHeld int) *taker {
	w := &taker{
		tb: tb, now: 1, ends: map[uint64]transfer.Complete{}, said: map[transfer.XferID]transfer.Msg{},
		m: transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }, MaxHeld: maxHeld, FenceGrace: transfer.Millisecond}),
	}
	w.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1000})
	w.step(transfer.LayoutSet{Session: 1, Layout: oneRank(tb)})
	w.step(transfer.PeerUp{Node: "b", Epoch: 1})
	w.says(layoutMsg(oneRank(tb)))
	return w
}

func layoutMsg(l *layout.Layout) *transfer.MsgLayout {
	return &transfer.MsgLayout{Layout: l}
}

func (w *taker) step(ev transfer.Event) {
	for _, e := range w.m.Step(w.now, ev) {
		switch e := e.(type) {
		case transfer.Complete:
			if e.Status != transfer.Released {
				w.ends[e.UserData] = e
			}
		case transfer.Send:
			switch msg := e.Msg.(type) {
			case *transfer.MsgTake:
				w.xfers = append(w.xfers, msg.Xfer)
			case *transfer.MsgEnd:
				w.said[msg.Xfer] = msg
			case *transfer.MsgGo:
				w.said[msg.Xfer] = msg
			}
		case transfer.LayerReady:
			w.layers = e.Ready
		case transfer.WriteInline:
			w.inline += len(e.Data)
		case transfer.Fence:
			w.fences = append(w.fences, e.Leg)
		}
	}
}

func (w *taker) says(msg transfer.Msg) { w.step(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: msg}) }

// take begins one that has a block, and returns its user_data and its transfer.
func (w *taker) take(after uint64) (uint64, transfer.XferID) {
	return w.takeWithin(transfer.Second, after)
}

func (w *taker) takeWithin(timeout transfer.Time, after uint64) (uint64, transfer.XferID) {
	w.users++
	w.step(transfer.Submit{Session: 1, UserData: w.users, Op: &transfer.TakeOp{
		Key: []byte("k"), Token: anyToken, Peer: "b", TakeID: w.users, LayerSlot: transfer.NoSlot, After: after, Timeout: timeout, Blocks: someBlocks(uint32(w.users), 1),
	}})
	return w.users, w.xfers[len(w.xfers)-1]
}

// grants announces a segment with so many block ids, from ranks with these layouts.
func (w *taker) grants(x transfer.XferID, seg uint32, ids int, ranks ...*layout.Layout) {
	g := &transfer.MsgGrant{
		Xfer: x, Seg: seg, Incarnation: 1, Engine: "p", Transport: "tcp", Blocks: []layout.BlockList{{NTokens: uint32(ids), IDs: make([]uint32, ids)}},
	}
	if ranks == nil {
		ranks = []*layout.Layout{oneRank(w.tb)}
	}
	for i, l := range ranks {
		g.Ranks = append(g.Ranks, transfer.RankRef{Rank: uint32(i), Digest: l.Digest()})
	}
	w.says(g)
}

// refused: the take has ended, for this and nothing else, and b knows it.
func (w *taker) refused(user uint64, x transfer.XferID) {
	w.tb.Helper()
	w.fenced()
	c, ended := w.ends[user]
	if !ended || c.Status != transfer.Failed || c.Reason != transfer.Quota || !strings.Contains(c.Text, `key "k": what node "b" makes node "a" keep, `) || !strings.Contains(c.Text, "for both together") {
		w.tb.Errorf("take %d: %+v, want it to end because too much was granted", user, c)
	}
	if end, ok := w.said[x].(*transfer.MsgEnd); !ok || end.Cause.Reason != transfer.Quota {
		w.tb.Errorf("take %d: node b was told %#v", user, w.said[x])
	}
}

func (w *taker) goesOn(user uint64) {
	w.tb.Helper()
	if c, ended := w.ends[user]; ended {
		w.tb.Errorf("take %d ended: %+v", user, c)
	}
}

func (w *taker) fenced() {
	fences := w.fences
	w.fences = nil
	for _, leg := range fences {
		w.step(transfer.Fenced{Leg: leg})
	}
}

// empty lets all deadlines pass, and checks that nothing is counted then.
func (w *taker) empty() {
	w.tb.Helper()
	w.now += 2 * transfer.Second
	w.step(transfer.Tick{})
	w.fenced()
	if n := w.m.HeldFor("b"); n != 0 {
		w.tb.Errorf("%d block ids are held for node b after all takes", n)
	}
}

// TestGrantsHoldNoMore: what a producer grants is kept up to a limit. What exceeds it ends the take that it is about, the others go on, and
// there is room again once takes are released.
func TestGrantsHoldNoMore(t *testing.T) {
	const limit = 10000
	t.Run("block ids", func(t *testing.T) {
		w := newTaker(t, limit)
		one, x := w.take(0)
		w.grants(x, 0, 6000)
		two, y := w.take(0)
		w.grants(y, 0, 6000)
		w.refused(two, y)
		w.goesOn(one)
		three, z := w.take(0)
		w.grants(z, 0, 2000)
		w.grants(z, 1, 1000)
		w.goesOn(three)
		w.grants(z, 2, 1000)
		w.step(transfer.Submit{Session: 1, UserData: 100, Op: &transfer.CancelOp{Target: one}})
		w.now += transfer.Second / 2
		w.step(transfer.Tick{})
		four, u := w.take(0)
		w.grants(u, 0, 6000) // that of the first is reported, and its plan not forgotten yet
		w.refused(four, u)
		five, v := w.take(0)
		w.grants(v, 0, 6000)
		w.goesOn(five)
		w.empty()
	})
	t.Run("of every rank", func(t *testing.T) {
		w := newTaker(t, limit)
		user, x := w.take(0)
		by := map[uint32][]layout.BlockList{}
		for rank := range uint32(5) {
			by[rank] = []layout.BlockList{{NTokens: 2000, IDs: make([]uint32, 2000)}}
		}
		l := oneRank(t)
		w.says(&transfer.MsgGrant{Xfer: x, Incarnation: 1, Transport: "tcp", Ranks: []transfer.RankRef{{Digest: l.Digest()}}, BlocksBy: by})
		w.refused(user, x)
		w.empty()
	})
	t.Run("ranks without block ids", func(t *testing.T) {
		w := newTaker(t, limit)
		_, x := w.take(0)
		w.grants(x, 0, 0) // by the layout that the others' ranks have, too
		user, x := w.take(0)
		w.grants(x, 0, 0, slices.Repeat([]*layout.Layout{oneRank(t)}, 256)...)
		w.goesOn(user)
		user, x = w.take(0)
		w.grants(x, 0, 0, slices.Repeat([]*layout.Layout{oneRank(t)}, 1024)...)
		w.refused(user, x)
		w.empty()
	})
	t.Run("empty lists of ranks", func(t *testing.T) {
		w := newTaker(t, limit)
		grant := func(x transfer.XferID, n uint32) {
			by := map[uint32][]layout.BlockList{}
			for rank := range n {
				by[rank] = []layout.BlockList{{}}
			}
			w.says(&transfer.MsgGrant{Xfer: x, Incarnation: 1, Transport: "tcp", Ranks: []transfer.RankRef{{Digest: oneRank(t).Digest()}}, BlocksBy: by})
		}
		user, x := w.take(0)
		grant(x, 50)
		w.goesOn(user)
		user, x = w.take(0)
		grant(x, 150)
		w.refused(user, x)
		w.empty()
	})
	t.Run("segments of nothing", func(t *testing.T) {
		w := newTaker(t, limit)
		user, x := w.take(0)
		for seg := uint32(0); seg < 4096 && len(w.ends) == 0; seg++ {
			w.grants(x, seg, 0)
		}
		w.refused(user, x)
		w.fenced()
		user, x = w.take(0)
		w.grants(x, 4095, 0) // with places for 4095 before it
		w.goesOn(user)
		user, x = w.take(0)
		w.grants(x, 4095, 0)
		w.refused(user, x)
		w.empty()
	})
	t.Run("layouts", func(t *testing.T) {
		w := newTaker(t, limit)
		first, x := w.take(0)
		w.grants(x, 0, 1)
		var last uint64
		for n := uint64(1); n < 100 && w.ends[last].Status == 0; n++ {
			l := manyViews(t, n)
			w.says(layoutMsg(l))
			last, x = w.take(0)
			w.grants(x, 0, 1, l, l) // two ranks whose memory lies alike
		}
		w.refused(last, x)
		w.goesOn(first)
		same, y := w.take(0)
		w.grants(y, 0, 1)
		w.goesOn(same)
		w.empty()
	})
	t.Run("bytes that wait to be written", func(t *testing.T) {
		w := newTaker(t, limit)
		l := oneRank(t)
		with := func(x transfer.XferID) {
			w.says(&transfer.MsgGrant{
				Xfer: x, Incarnation: 1, Transport: "tcp", Last: true, Ranks: []transfer.RankRef{{Digest: l.Digest()}}, Blocks: someBlocks(0, 1),
				Slices: 1, Bytes: 4096, HasInline: true, Inline: make([]byte, 24000),
			})
			w.step(transfer.Planned{Leg: transfer.Leg{Peer: "b", Epoch: 1, Xfer: x, End: transfer.Consumer}, Slices: 1, Bytes: 4096})
		}
		const later = 1 << 16
		one, x := w.take(later)
		with(x)
		two, y := w.take(later)
		with(y)
		w.refused(two, y)
		w.goesOn(one)
		w.step(transfer.Progress{Session: 1, Value: later})
		if w.inline != 24000 {
			t.Errorf("%d bytes are written", w.inline)
		}
		three, z := w.take(0)
		with(z)
		w.goesOn(three)
		w.empty()
	})
}

// manyViews is a layout of 48 views, another for each n.
func manyViews(t *testing.T, n uint64) *layout.Layout { return withViews(t, n, 48) }

func withViews(t *testing.T, n uint64, layers uint32) *layout.Layout {
	var views []layout.View
	for layer := range layers {
		views = append(views, layout.View{
			Region: layout.RegionID(n), Base: uint64(layer) << 20, NumBlocks: 64, BlockStride: 4096, TokenStride: 4096, HeadStride: 4096, ContentBytes: 4096,
			Kind: layout.Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv", Layer: layer,
		})
	}
	l, err := layout.New(views, []layout.Field{{Key: "model", Value: "m"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestAGrantOfAnotherModelEndsTheTake: whatever its producer makes of it.
func TestAGrantOfAnotherModelEndsTheTake(t *testing.T) {
	w := newTaker(t, 0)
	user, x := w.take(0)
	w.says(layoutMsg(otherModel(t)))
	w.grants(x, 0, 1, otherModel(t))
	w.fenced()
	if c := w.ends[user]; c.Status != transfer.Failed || c.Reason != transfer.Incompatible || !strings.Contains(c.Text, `fingerprint field "model"`) {
		t.Errorf("the take: %+v", c)
	}
}
