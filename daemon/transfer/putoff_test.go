package transfer_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// asker is a machine of which node b asks for something.
type asker struct {
	tb     testing.TB
	m      *transfer.Machine
	now    transfer.Time
	said   []transfer.Msg // by the last step
	begun  []transfer.XferID
	fences []transfer.Leg
}

func newAsker(tb testing.TB, maxHeld int) *asker {
	n := uint64(0)
	a := &asker{tb: tb, now: 1, m: transfer.New(transfer.Config{Node: "a", Random: func() uint64 { n++; return n << 32 }, MaxHeld: maxHeld, MaxParked: 3})}
	a.step(transfer.PeerUp{Node: "b", Epoch: 1})
	return a
}

func (a *asker) step(ev transfer.Event) {
	a.said, a.begun = nil, nil
	for _, e := range a.m.Step(a.now, ev) {
		switch e := e.(type) {
		case transfer.Send:
			a.said = append(a.said, e.Msg)
		case transfer.MakePlan:
			a.begun = append(a.begun, e.Leg.Xfer)
		case transfer.Fence:
			a.fences = append(a.fences, e.Leg)
		}
	}
}

// offers has a worker of node a offer "k" to so many consumers, as operation 50.
func (a *asker) offers(consumers int) {
	a.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1000})
	a.step(transfer.LayoutSet{Session: 1, Layout: oneRank(a.tb)})
	a.step(transfer.Submit{Session: 1, UserData: 50, Op: &transfer.OfferOp{
		Key: []byte("k"), Token: anyToken, Sealed: true, Consumers: consumers, Lease: 60 * transfer.Second, Blocks: someBlocks(0, 1),
	}})
}

func (a *asker) asks(msg transfer.Msg) { a.step(transfer.PeerMsg{Node: "b", Epoch: 1, Msg: msg}) }

// begins checks that the last step began a transfer, and nothing else.
func (a *asker) begins(x transfer.XferID) {
	a.tb.Helper()
	if len(a.begun) != 1 || a.begun[0] != x {
		a.tb.Errorf("transfers %v were begun, want %d; b was told %+v", a.begun, x, a.said)
	}
}

// plans has the plan of a transfer to b made, of one slice, and so its grant sent.
func (a *asker) plans(x transfer.XferID) transfer.Leg {
	leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: x, End: transfer.Producer}
	a.step(transfer.Planned{Leg: leg, Slices: 1, Bytes: 4096, Transport: "tcp"})
	return leg
}

// granted is the incarnation of the offer of which the last step granted a piece; 0: of none.
func (a *asker) granted() (incarnation uint64) {
	for _, msg := range a.said {
		if g, ok := msg.(*transfer.MsgGrant); ok {
			incarnation = g.Incarnation
		}
	}
	return incarnation
}

// putOff checks that in the last step b was told to ask for a transfer again, and why.
func (a *asker) putOff(x transfer.XferID) {
	a.tb.Helper()
	for _, msg := range a.said {
		if r, ok := msg.(*transfer.MsgRefuse); ok && r.Xfer == x && strings.Contains(r.Cause.Text, "makes node \"a\" keep") && r.Retry > 0 && len(a.begun) == 0 {
			return
		}
	}
	a.tb.Errorf("b was told %+v, and %v were begun; want it to ask for transfer %d again", a.said, a.begun, x)
}

// ends has b say that a transfer is over.
func (a *asker) ends(x transfer.XferID) {
	a.asks(&transfer.MsgEnd{Xfer: x, Status: transfer.WasCancelled})
	fences := a.fences
	a.fences = nil
	for _, leg := range fences {
		a.step(transfer.Fenced{Leg: leg})
	}
}

func (a *asker) later(d transfer.Time) {
	a.now += d
	a.step(transfer.Tick{})
}

// takeOf is one of an offer "k", into memory of that layout.
func takeOf(x transfer.XferID, l *layout.Layout) *transfer.MsgTake {
	return &transfer.MsgTake{
		Xfer: x, Engine: "f", TakeID: uint64(x), Parts: 1, Key: []byte("k"), Token: anyToken, Deadline: 10 * transfer.Second,
		Ranks: []transfer.RankRef{{Digest: l.Digest()}}, Blocks: someBlocks(0, 1),
	}
}

// TestLayoutsOfTakesCount: takes that a peer asks of this node keep its layouts, too. Those for which there is no room begin when there is some.
func TestLayoutsOfTakesCount(t *testing.T) {
	a := newAsker(t, 5000)
	a.offers(100)
	var takes []*transfer.MsgTake
	for x := transfer.XferID(1); x <= 5; x++ {
		l := manyViews(t, uint64(x))
		a.asks(layoutMsg(l))
		takes = append(takes, takeOf(x, l))
		a.asks(takes[x-1])
		if x <= 2 {
			a.begins(x)
		} else {
			a.putOff(x)
		}
	}
	if held := a.m.HeldFor("b"); held > 5000 {
		t.Errorf("%d are held", held)
	}
	a.asks(takes[2])
	a.putOff(3)
	a.ends(1)
	a.asks(takes[2])
	a.begins(3)
	a.ends(2)
	a.ends(3)
	a.ends(4) // of which nothing is left that could end
	a.asks(takes[4])
	a.begins(5)
	a.ends(5)
	if held := a.m.HeldFor("b"); held != 0 {
		t.Errorf("%d are held after all takes", held)
	}
}

// TestRanksOfTakesCount: a take that waits for its offer keeps its list of ranks, and there may be many.
func TestRanksOfTakesCount(t *testing.T) {
	a := newAsker(t, 5000)
	l := oneRank(t)
	wide := func(x transfer.XferID) *transfer.MsgTake {
		msg := takeOf(x, l)
		for range 200 {
			msg.Ranks = append(msg.Ranks, transfer.RankRef{Digest: l.Digest()})
		}
		return msg
	}
	a.asks(wide(1))
	for _, msg := range a.said {
		if _, ok := msg.(*transfer.MsgParked); !ok {
			t.Errorf("b was told %+v", msg)
		}
	}
	a.asks(wide(2))
	a.putOff(2)
	a.ends(1)
	if held := a.m.HeldFor("b"); held != 0 {
		t.Errorf("%d are held after all takes", held)
	}
}

// TestPlansOfTakesCount: takes that a peer asks of this node make plans here, of which the block ids say little. The one whose plan is too much
// ends, and says why.
func TestPlansOfTakesCount(t *testing.T) {
	for name, plan := range map[string]transfer.Planned{
		"views": {Slices: 1, Bytes: 1, Transport: "tcp", Size: 8000}, "bytes in the grant": {Slices: 1, Bytes: 8000, Transport: "tcp", Inline: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsker(t, 6000)
			a.offers(100)
			l := oneRank(t)
			a.asks(layoutMsg(l))
			for x := transfer.XferID(1); x <= 3; x++ {
				a.asks(takeOf(x, l))
				a.begins(x)
				plan.Leg = transfer.Leg{Peer: "b", Epoch: 1, Xfer: x, End: transfer.Producer}
				a.step(plan)
				if x < 3 {
					continue
				}
				for _, leg := range a.fences {
					a.step(transfer.Fenced{Leg: leg})
				}
				if i := slices.IndexFunc(a.said, func(msg transfer.Msg) bool {
					e, ok := msg.(*transfer.MsgAbort)
					return ok && e.Xfer == x && e.Cause.Reason == transfer.Quota && strings.Contains(e.Cause.Text, "makes node \"a\" keep")
				}); i < 0 {
					t.Errorf("b was told %+v, want that take %d ends", a.said, x)
				}
				a.fences = nil
			}
			a.ends(3)
			a.ends(2)
			a.ends(1)
			if held := a.m.HeldFor("b"); held != 0 {
				t.Errorf("%d are held after all takes", held)
			}
		})
	}
}

// TestAnItemWaitsForRoom: a GET for whose take there is no room keeps the item that was found for it: until it asks again, or does not for too long.
func TestAnItemWaitsForRoom(t *testing.T) {
	for _, comes := range []bool{true, false} {
		a := newAsker(t, 1050) // one layout, two segments and a few block ids
		memory := arena(t, 64)
		a.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
		a.step(transfer.LayoutSet{Session: 1, Layout: memory})
		a.step(transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindOwn, Name: "n", Capacity: 1 << 14}})
		insert := func(i uint32) {
			a.step(transfer.Submit{Session: 1, UserData: uint64(i) + 2, Op: &transfer.PutOp{Target: 1, Form: transfer.MatchAny, Bytes: 256, Blocks: blocksOf(4*i, 256)}})
		}
		seek := func(x transfer.XferID, l *layout.Layout) {
			a.asks(layoutMsg(l))
			a.asks(&transfer.MsgSeek{
				Xfer: x, Bind: 1, Buffer: true, Name: "n", Match: transfer.MatchAny, Room: 256, Deadline: transfer.Second,
				Take: &transfer.MsgTake{Engine: "f", TakeID: uint64(x), Parts: 1, Ranks: []transfer.RankRef{{Digest: l.Digest()}}, Blocks: blocksOf(0, 256)},
			})
		}
		insert(0)
		seek(1, arena(t, 65))
		a.begins(1)
		insert(1)
		other := arena(t, 66)
		seek(2, other)
		a.putOff(2)
		var found *transfer.MsgFound
		for _, msg := range a.said {
			if msg, ok := msg.(*transfer.MsgFound); ok {
				found = msg
			}
		}
		a.ends(1) // and its item goes back
		seek(3, arena(t, 65))
		a.begins(3)
		a.ends(3)
		again := func(x transfer.XferID) {
			a.asks(&transfer.MsgTake{
				Xfer: x, Engine: "f", TakeID: 2, Parts: 1, Key: found.Key, Token: found.Token, Deadline: transfer.Second,
				Ranks: []transfer.RankRef{{Digest: other.Digest()}}, Blocks: blocksOf(0, 256),
			})
		}
		if comes {
			a.later(transfer.Second)
			again(2)
			a.begins(2)
			a.ends(2)
			continue
		}
		a.later(transfer.Second)
		a.later(5 * transfer.Second)
		again(2)
		if len(a.begun) > 0 {
			t.Error("an item was reserved for ever")
		}
		seek(4, other)
		a.begins(4)
		seek(5, other)
		a.begins(5)
	}
}
