package transfer_test

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// offersPieces has a worker of node a offer "k" in so many pieces, of which the first alone has blocks, and seal it if it says so.
func (a *asker) offersPieces(pieces int, seal bool) {
	a.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 4096})
	a.step(transfer.LayoutSet{Session: 1, Layout: oneRank(a.tb)})
	a.step(transfer.Submit{Session: 1, UserData: 50, Op: &transfer.OfferOp{
		Key: []byte("k"), Token: anyToken, Consumers: 1000, Lease: 60 * transfer.Second, Blocks: someBlocks(0, 1),
	}})
	for range pieces - 1 {
		a.extends()
	}
	if seal {
		a.step(transfer.Submit{Session: 1, UserData: 51, Op: &transfer.ExtendOp{Target: 50, Sealed: true}})
	}
}

func (a *asker) extends() {
	a.step(transfer.Submit{Session: 1, UserData: 51, Op: &transfer.ExtendOp{Target: 50, Blocks: []layout.BlockList{{FirstToken: 1}}}})
}

// TestPiecesOfTakesCount: a take of one block keeps as many segments as the offer has pieces. One for which there is no room begins when
// there is some.
func TestPiecesOfTakesCount(t *testing.T) {
	const limit = 5000
	a := newAsker(t, limit)
	a.offersPieces(10, true)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	begins := func(x transfer.XferID) {
		t.Helper()
		if want := slices.Repeat([]transfer.XferID{x}, 10); !slices.Equal(a.begun, want) {
			t.Errorf("segments %v were begun, want ten of %d; b was told %+v", a.begun, x, a.said)
		}
	}
	a.asks(takeOf(1, l))
	begins(1)
	a.asks(takeOf(2, l))
	a.putOff(2)
	if held := a.m.HeldFor("b"); held > limit {
		t.Errorf("%d are held", held)
	}
	a.ends(1)
	a.asks(takeOf(2, l))
	begins(2)
	a.ends(2)
	if held := a.m.HeldFor("b"); held != 0 {
		t.Errorf("%d are held after all takes", held)
	}
}

// TestAnOfferThatGrowsTooMuch: an offer is extended while it is taken. The take for whose next segment there is no room ends, and says why.
func TestAnOfferThatGrowsTooMuch(t *testing.T) {
	a := newAsker(t, 5000)
	a.offersPieces(1, false)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	a.begins(1)
	aborted := func() bool {
		fences := a.fences
		a.fences = nil
		for _, leg := range fences {
			a.step(transfer.Fenced{Leg: leg})
		}
		return slices.ContainsFunc(a.said, func(msg transfer.Msg) bool {
			e, ok := msg.(*transfer.MsgAbort)
			return ok && e.Xfer == 1 && e.Cause.Reason == transfer.Quota
		})
	}
	pieces := 1
	for ; pieces < 100 && !aborted(); pieces++ {
		a.extends()
	}
	if pieces != 13 {
		t.Errorf("the take ended with piece %d, want 13", pieces)
	}
	if held := a.m.HeldFor("b"); held != 0 {
		t.Errorf("%d are held after it", held)
	}
}

// TestOrdinaryPiecesFit: 60 takes at a time of an offer that was extended after each of 512 steps.
func TestOrdinaryPiecesFit(t *testing.T) {
	a := &asker{tb: t, now: 1, m: transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})}
	a.step(transfer.PeerUp{Node: "b", Epoch: 1})
	a.offersPieces(512, true)
	l := oneRank(t)
	a.asks(layoutMsg(l))
	for x := transfer.XferID(1); x <= 60; x++ {
		if a.asks(takeOf(x, l)); len(a.begun) != 512 {
			t.Fatalf("%d segments of take %d were begun; b was told %+v", len(a.begun), x, a.said)
		}
	}
}
