package transfer_test

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// piece has node b grant a piece of an offer, of so many slices, which this node plans.
func (w *taker) piece(x transfer.XferID, seg, slices uint32, last bool, inline []byte) {
	l := oneRank(w.tb)
	w.says(&transfer.MsgGrant{
		Xfer: x, Seg: seg, Incarnation: 1, Engine: "p", Transport: "tcp", Last: last, Slices: slices, Bytes: 64, HasInline: inline != nil, Inline: inline,
		Ranks: []transfer.RankRef{{Digest: l.Digest()}}, Blocks: someBlocks(seg, 1),
	})
	w.planned(x, seg, transfer.Planned{Slices: slices, Bytes: 64})
}

// lands has slices of a piece arrive.
func (w *taker) lands(x transfer.XferID, seg uint32, slices ...uint32) {
	leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: x, End: transfer.Consumer}
	for _, s := range slices {
		w.step(transfer.SliceLanded{Key: transfer.SliceKey{Leg: leg, Seg: seg, Slice: s}})
	}
}

// decided checks whether the take is fenced, which is how its commit begins.
func (w *taker) decided(when string, want bool) {
	w.tb.Helper()
	if got := len(w.fences) > 0; got != want {
		w.tb.Errorf("%s: fenced: %v, want %v", when, got, want)
	}
}

// TestATakeIsDecidedWhenAllIsThere: every slice of every piece, under one hold, and the producer's word that there are no more.
func TestATakeIsDecidedWhenAllIsThere(t *testing.T) {
	t.Run("by slices", func(t *testing.T) {
		w := newTaker(t, 0)
		_, x := w.take(0)
		w.piece(x, 0, 2, false, nil)
		w.lands(x, 0, 0, 1)
		w.decided("the producer has not said that this is all", false)
		w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: 2})
		w.decided("a piece was not granted yet", false)
		w.piece(x, 1, 2, true, nil)
		w.lands(x, 1, 0, 0)
		w.decided("a slice is still to come", false)
		w.lands(x, 1, 1)
		w.decided("all is there", true)
	})
	t.Run("spoiled while it is fenced", func(t *testing.T) {
		w := newTaker(t, 0)
		user, x := w.take(0)
		w.piece(x, 0, 2, true, nil)
		w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: 1})
		w.lands(x, 0, 0, 1)
		w.decided("all is there", true)
		leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: x, End: transfer.Consumer}
		w.step(transfer.SliceLanded{Key: transfer.SliceKey{Leg: leg, Slice: 1}, Cause: transfer.Cause{Reason: transfer.Corrupt, Text: "a late copy"}})
		w.step(transfer.Fenced{Leg: leg})
		if c := w.ends[user]; c.Status != transfer.Failed || c.Reason != transfer.Corrupt {
			t.Errorf("%+v, want the take to fail: a late copy spoiled a slice", c)
		}
	})
	t.Run("spoiled while it is fenced, and the offer lacks blocks", func(t *testing.T) {
		w := newTaker(t, 0)
		w.step(transfer.Submit{Session: 1, UserData: 1, Op: &transfer.TakeOp{
			Key: []byte("k"), Token: anyToken, Peer: "b", TakeID: 1, LayerSlot: transfer.NoSlot, Timeout: transfer.Second, Blocks: someBlocks(20, 3),
		}})
		x := w.xfers[0]
		w.says(&transfer.MsgGrant{
			Xfer: x, Incarnation: 1, Engine: "p", Transport: "tcp", Last: true, Slices: 1, Bytes: 64, Ranks: []transfer.RankRef{{Digest: oneRank(t).Digest()}}, Blocks: someBlocks(0, 2),
		})
		w.planned(x, 0, transfer.Planned{Slices: 1, Bytes: 64, Missing: []layout.Run{{First: 22, Count: 1}}})
		w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: 1})
		w.lands(x, 0, 0)
		w.decided("all is there", true)
		leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: x, End: transfer.Consumer}
		w.step(transfer.SliceLanded{Key: transfer.SliceKey{Leg: leg}, Cause: transfer.Cause{Reason: transfer.Corrupt, Text: "a late copy"}})
		w.step(transfer.Fenced{Leg: leg})
		if c, all := w.ends[1], []layout.Run{{First: 20, Count: 3}}; c.Status != transfer.Failed || c.Reason != transfer.Corrupt || !slices.Equal(c.Failed, all) {
			t.Errorf("%+v, want the take to fail, and none of the blocks %v to be used", c, all)
		}
	})
	t.Run("inline", func(t *testing.T) {
		w := newTaker(t, 0)
		_, x := w.take(0)
		leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: x, End: transfer.Consumer}
		w.piece(x, 0, 1, false, make([]byte, 64))
		w.step(transfer.InlineWritten{Leg: leg})
		w.decided("this was not the last piece", false)
		w.piece(x, 1, 1, true, make([]byte, 64))
		w.decided("it is being written", false)
		w.step(transfer.InlineWritten{Leg: leg, Seg: 1})
		w.decided("all is there", true)
	})
	t.Run("of another offer", func(t *testing.T) {
		w := newTaker(t, 0)
		user, x := w.take(0)
		w.piece(x, 0, 1, true, nil)
		w.lands(x, 0, 0)
		w.says(&transfer.MsgSent{Xfer: x, Incarnation: 2, Segs: 1})
		w.fenced()
		if c := w.ends[user]; c.Status != transfer.Failed || c.Reason != transfer.Expired {
			t.Errorf("the take ended %+v, want it failed: the offer was replaced", c)
		}
	})
}

// patient begins a take that has ten minutes.
func (w *taker) patient() (uint64, transfer.XferID) { return w.takeWithin(600*transfer.Second, 0) }

// asksAgain lets two minutes pass, and returns the slices that b was asked to send again.
func (w *taker) asksAgain() (asked []uint32) {
	for range 120 {
		w.now += transfer.Second
		for _, e := range w.m.Step(w.now, transfer.Tick{}) {
			switch e := e.(type) {
			case transfer.Send:
				if r, ok := e.Msg.(*transfer.MsgResend); ok {
					asked = append(asked, r.Slices...)
				}
			case transfer.Complete:
				w.ends[e.UserData] = e
			}
		}
	}
	return asked
}

// TestWhatIsWrittenHereIsNotLost: bytes that came with their grant are in this node's hands, however long that takes.
func TestWhatIsWrittenHereIsNotLost(t *testing.T) {
	w := newTaker(t, 0)
	user, x := w.patient()
	w.piece(x, 0, 1, true, make([]byte, 64))
	w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: 1})
	if asked := w.asksAgain(); len(asked) > 0 {
		t.Errorf("slices %d are asked for again", asked)
	}
	w.goesOn(user)
	w.step(transfer.InlineWritten{Leg: transfer.Leg{Peer: "b", Epoch: 1, Xfer: x, End: transfer.Consumer}})
	w.decided("all is there", true)
}

// TestLostSlicesAreAskedForAgain: once nothing has landed for a while, and each time that it stays so, since the way that they were
// lost with may come back.
func TestLostSlicesAreAskedForAgain(t *testing.T) {
	w := newTaker(t, 0)
	user, x := w.patient()
	w.piece(x, 0, 3, true, nil)
	w.lands(x, 0, 1)
	w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: 1})
	asked := w.asksAgain()
	if len(asked) < 4 || asked[0] != 0 || asked[1] != 2 || asked[2] != 0 || asked[3] != 2 {
		t.Errorf("slices %d were asked for again, want 0 and 2, several times", asked)
	}
	w.goesOn(user)
	w.lands(x, 0, 0)
	w.lands(x, 0, 2)
	w.decided("the others came after all", true)
}

// TestLostSlicesAreNotAskedForAgainForEver: a producer would not send them any more.
func TestLostSlicesAreNotAskedForAgainForEver(t *testing.T) {
	w := newTaker(t, 0)
	user, x := w.patient()
	w.piece(x, 0, 1, true, nil)
	w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: 1})
	asked := 0
	for range 5 {
		asked += len(w.asksAgain())
	}
	if asked != 64 {
		t.Errorf("a slice was asked for again %d times, want 64", asked)
	}
	if c := w.ends[user]; c.Reason != transfer.PeerGone {
		t.Errorf("the take: %+v, want it to end once that was in vain", c)
	}
}

// TestWhatStillComesIsNotLost: slices that take long, but of which one lands now and then, are not asked for again.
func TestWhatStillComesIsNotLost(t *testing.T) {
	w := newTaker(t, 0)
	user, x := w.patient()
	const slices = 8
	w.piece(x, 0, slices, true, nil)
	w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: 1})
	for s := range uint32(slices) {
		w.goesOn(user)
		for range 9 {
			w.now += transfer.Second / 10
			for _, e := range w.m.Step(w.now, transfer.Tick{}) {
				if send, ok := e.(transfer.Send); ok {
					t.Errorf("before slice %d came, b was told %+v", s, send.Msg)
				}
			}
		}
		w.lands(x, 0, s)
	}
	w.decided("all came", true)
}

// TestASliceOfNoPlanDoesNotCount: only those of the segment make it whole.
func TestASliceOfNoPlanDoesNotCount(t *testing.T) {
	w := newTaker(t, 0)
	_, x := w.patient()
	w.piece(x, 0, 2, true, nil)
	w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: 1})
	w.lands(x, 0, 0, 2, 1000)
	w.decided("one of two is there", false)
	w.lands(x, 0, 1)
	w.decided("both are there", true)
}

// TestAWriteThatFailedPutsNoLayerInPlace: nobody is told to read what came with the grant and could not be written.
func TestAWriteThatFailedPutsNoLayerInPlace(t *testing.T) {
	for _, fails := range []bool{false, true} {
		w := newTaker(t, 0)
		w.step(transfer.Submit{Session: 1, UserData: 50, Op: &transfer.TakeOp{
			Key: []byte("k"), Token: anyToken, Peer: "b", TakeID: 50, Layered: true, LayerSlot: 1, Timeout: transfer.Second, Blocks: someBlocks(1, 1),
		}})
		x := w.xfers[0]
		w.says(&transfer.MsgGrant{
			Xfer: x, Incarnation: 1, Engine: "p", Transport: "tcp", Last: true, Layered: true, Slices: 1, Bytes: 64, HasInline: true, Inline: make([]byte, 64),
			Ranks: []transfer.RankRef{{Digest: oneRank(t).Digest()}}, Blocks: someBlocks(0, 1),
		})
		w.planned(x, 0, transfer.Planned{Slices: 1, Bytes: 64, Marks: []transfer.Mark{{}}})
		written := transfer.InlineWritten{Leg: transfer.Leg{Peer: "b", Epoch: 1, Xfer: x, End: transfer.Consumer}}
		if fails {
			written.Cause = transfer.Cause{Reason: transfer.Corrupt, Text: "a device error"}
		}
		w.step(written)
		w.fenced()
		if told := w.layers > 0; told == fails {
			t.Errorf("the write failed: %v, and %d layers are said to be in place", fails, w.layers)
		}
		if c := w.ends[50]; fails && (c.Status != transfer.Failed || c.Reason != transfer.Corrupt || c.Text != "a device error") {
			t.Errorf("the write failed, and the take: %+v", c)
		}
	}
}

// TestWhoMayNotHaveHeardIsAskedEachTime: only a producer that is known to have the request is asked ever more seldom.
func TestWhoMayNotHaveHeardIsAskedEachTime(t *testing.T) {
	for _, heard := range []bool{false, true} {
		w := newTaker(t, 0)
		_, x := w.patient()
		if heard {
			w.says(&transfer.MsgParked{Xfer: x})
		}
		for range 16 {
			w.now += transfer.Second
			w.step(transfer.Tick{})
		}
		if n, want := len(w.xfers), map[bool]int{false: 17, true: 6}[heard]; n != want {
			t.Errorf("b has heard: %v; it was asked %d times in 16 s, want %d", heard, n, want)
		}
	}
}

// TestAnAnswerToNothingChangesNothing: a take that has not ended has said nothing that could be acknowledged, and goes on asking.
func TestAnAnswerToNothingChangesNothing(t *testing.T) {
	w := newTaker(t, 0)
	_, x := w.patient()
	w.says(&transfer.MsgEndAck{Xfer: x})
	w.now += 2 * transfer.Second
	w.step(transfer.Tick{})
	if len(w.xfers) != 2 {
		t.Errorf("b was asked %d times, want again after a while", len(w.xfers))
	}
}

// TestALateReportOfAnEarlierAttemptAsksForNothing: that the slice is wanted is said already.
func TestALateReportOfAnEarlierAttemptAsksForNothing(t *testing.T) {
	w := newTaker(t, 0)
	user, x := w.patient()
	w.piece(x, 0, 2, true, nil)
	leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: x, End: transfer.Consumer}
	lost := func(attempt uint32) (asked []uint32) {
		for _, e := range w.m.Step(w.now, transfer.SliceLanded{Key: transfer.SliceKey{Leg: leg, Slice: 1, Attempt: attempt}, Cause: transfer.Cause{Reason: transfer.Corrupt, Text: "spoiled"}}) {
			if s, ok := e.(transfer.Send); ok {
				if r, ok := s.Msg.(*transfer.MsgResend); ok {
					asked = append(asked, r.Attempt)
				}
			}
		}
		return asked
	}
	for i, want := range [][]uint32{{1}, nil, {2}, nil, nil} {
		if asked := lost([]uint32{0, 0, 1, 0, 1}[i]); !slices.Equal(asked, want) {
			t.Errorf("report %d: b was asked for attempts %v, want %v", i, asked, want)
		}
	}
	w.goesOn(user)
}

// TestThePeerIsToldHowLongItHas: as long as the operation has still, whenever it is asked.
func TestThePeerIsToldHowLongItHas(t *testing.T) {
	for _, op := range []transfer.Op{
		&transfer.TakeOp{Key: []byte("k"), Token: anyToken, Peer: "b", LayerSlot: transfer.NoSlot, Timeout: 10 * transfer.Second, Blocks: blocksOf(0, 10)},
		&transfer.GetOp{Target: 1, Match: transfer.MatchNext, Room: 10, Timeout: 10 * transfer.Second, Blocks: blocksOf(0, 10)},
	} {
		_, get := op.(*transfer.GetOp)
		role := map[bool]transfer.Role{false: transfer.Worker, true: transfer.Endpoint}[get]
		a := newAsking(t, role)
		if get {
			a.step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindRecv, Name: "p", Peer: "b"}})
		}
		var told []transfer.Time
		look := func(now transfer.Time, ev transfer.Event) {
			for _, e := range a.m.Step(now, ev) {
				if s, ok := e.(transfer.Send); ok {
					switch msg := s.Msg.(type) {
					case *transfer.MsgTake:
						told = append(told, msg.Deadline)
					case *transfer.MsgSeek:
						told = append(told, msg.Deadline)
					}
				}
			}
		}
		look(1, transfer.Submit{Session: 1, UserData: 2, Op: op})
		look(1+transfer.Second, transfer.Tick{})
		if want := []transfer.Time{10 * transfer.Second, 9 * transfer.Second}; !slices.Equal(told, want) {
			t.Errorf("%T: b was told %v, want %v", op, told, want)
		}
	}
}

// TestASliceThatIsSpoiledLateIsAskedForAgain: as long as nobody was told that it is in place.
func TestASliceThatIsSpoiledLateIsAskedForAgain(t *testing.T) {
	w := newTaker(t, 0)
	user, x := w.patient()
	w.piece(x, 0, 2, true, nil)
	w.lands(x, 0, 0)
	key := transfer.SliceKey{Leg: transfer.Leg{Peer: "b", Epoch: 1, Xfer: x, End: transfer.Consumer}}
	asked := 0
	for _, e := range w.m.Step(w.now, transfer.SliceLanded{Key: key, Cause: transfer.Cause{Reason: transfer.Corrupt, Text: "spoiled"}}) {
		if s, ok := e.(transfer.Send); ok {
			if r, ok := s.Msg.(*transfer.MsgResend); ok && slices.Equal(r.Slices, []uint32{0}) {
				asked++
			}
		}
	}
	w.goesOn(user)
	w.lands(x, 0, 1)
	w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: 1})
	w.decided("one of two is spoiled", false)
	key.Attempt = 1
	w.step(transfer.SliceLanded{Key: key})
	w.decided("it came again", true)
	if asked != 1 {
		t.Errorf("it was asked for %d times", asked)
	}
}

// TestWhatIsOverIsDisowned: a producer that says something of a transfer which nobody here waits for hears that it may let go.
func TestWhatIsOverIsDisowned(t *testing.T) {
	for _, msg := range []transfer.Msg{
		&transfer.MsgAbort{Xfer: 77, Cause: transfer.Cause{Reason: transfer.PeerGone}}, &transfer.MsgSent{Xfer: 77}, &transfer.MsgGrant{Xfer: 77},
	} {
		w := newTaker(t, 0)
		w.says(msg)
		if end, ok := w.said[77].(*transfer.MsgEnd); !ok || end.Status != transfer.WasCancelled {
			t.Errorf("%T: b was told %+v", msg, w.said[77])
		}
	}
}
