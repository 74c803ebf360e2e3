package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// remembersLittle checks that what has ended refers to no block ids, segments and grants.
func remembersLittle(t *testing.T, m *transfer.Machine) {
	t.Helper()
	if ids, segs, grants := m.Remembered(); ids+segs+grants > 0 {
		t.Errorf("what has ended still refers to %d block ids, %d segments, %d grants", ids, segs, grants)
	}
}

// TestARememberedTakeIsSmall: a take whose end its producer does not acknowledge is remembered without what it was about.
func TestARememberedTakeIsSmall(t *testing.T) {
	for name, ends := range map[string]func(w *taker, user uint64, x transfer.XferID){
		"cancelled": func(w *taker, user uint64, _ transfer.XferID) {
			w.step(transfer.Submit{Session: 1, UserData: 100, Op: &transfer.CancelOp{Target: user}})
		},
		"without what it asked for": func(w *taker, _ uint64, x transfer.XferID) {
			w.says(&transfer.MsgSent{Xfer: x, Incarnation: 1, Segs: 3})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTaker(t, 0)
			user, x := w.take(0)
			for seg := range uint32(3) {
				w.grants(x, seg, 3)
				w.planned(x, seg, transfer.Planned{Missing: scattered(2)})
			}
			ends(w, user, x)
			w.fenced()
			if c := w.ends[user]; c.Status == 0 {
				t.Fatal("the take runs")
			}
			if s := w.m.Snapshot().Transfers; len(s) != 1 || s[0].State != "ended" || s[0].Transport != "tcp" {
				t.Fatalf("remembered: %+v, want the one take, and by which transport it went", s)
			}
			remembersLittle(t, w.m)
		})
	}
}

// TestARememberedGetIsSmall is TestARememberedTakeIsSmall for one that nothing was found for.
func TestARememberedGetIsSmall(t *testing.T) {
	w := newTaker(t, 0)
	w.step(transfer.SessionOpened{Session: 2, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
	w.step(transfer.LayoutSet{Session: 2, Layout: arena(t, 64)})
	w.step(transfer.Submit{Session: 2, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindSelect, Name: "n", Peer: "b"}})
	w.step(transfer.Submit{Session: 2, UserData: 2, Op: &transfer.GetOp{
		Target: 1, Match: transfer.MatchPrefix, Tokens: []uint32{1, 2, 3}, Room: 256, Timeout: 5 * transfer.Second, Blocks: blocksOf(0, 256),
	}})
	w.step(transfer.Submit{Session: 2, UserData: 3, Op: &transfer.CancelOp{Target: 2}})
	w.fenced()
	if n := len(w.m.Snapshot().Transfers); n != 1 {
		t.Fatalf("%d transfers are remembered, want that of the get", n)
	}
	remembersLittle(t, w.m)
}

// TestARememberedOfferIsSmall: an offer that was withdrawn when all of it was sent is remembered until its consumer says how the take ended,
// without its blocks.
func TestARememberedOfferIsSmall(t *testing.T) {
	a := newAsker(t, 0)
	l := oneRank(t)
	a.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1000})
	a.step(transfer.LayoutSet{Session: 1, Layout: l})
	a.step(transfer.Submit{Session: 1, UserData: 1, Op: &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Lease: 60 * transfer.Second, Blocks: someBlocks(0, 3)}})
	more := someBlocks(3, 3)
	more[0].FirstToken = 3
	a.step(transfer.Submit{Session: 1, UserData: 2, Op: &transfer.ExtendOp{Target: 1, Sealed: true, Blocks: more}})
	a.asks(layoutMsg(l))
	a.asks(takeOf(1, l))
	leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: 1, End: transfer.Producer}
	for seg := range uint32(2) {
		a.step(transfer.Planned{Leg: leg, Seg: seg, Transport: "tcp", Slices: 1, Bytes: 4096})
		a.asks(&transfer.MsgGo{Xfer: 1, Seg: seg})
		a.step(transfer.SliceSent{Key: transfer.SliceKey{Leg: leg, Seg: seg}})
	}
	a.step(transfer.Submit{Session: 1, UserData: 3, Op: &transfer.WithdrawOp{Target: 1}})
	a.step(transfer.Fenced{Leg: leg})
	if n := a.m.RememberedOffers(); n != 1 {
		t.Fatalf("%d offers are remembered, want the one that was withdrawn", n)
	}
	remembersLittle(t, a.m)
}
