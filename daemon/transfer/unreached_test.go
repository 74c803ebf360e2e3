package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestWhatHasEndedIsNotAskedFor: an operation that ended before its peer was reached is not said when that comes.
func TestWhatHasEndedIsNotAskedFor(t *testing.T) {
	for name, op := range map[string]transfer.Op{
		"a take":  &transfer.TakeOp{Key: []byte("k"), Token: anyToken, TakeID: 1, Peer: "c", LayerSlot: transfer.NoSlot, Timeout: transfer.Second, Blocks: blocksOf(0, 10)},
		"a watch": &transfer.WatchOp{Key: []byte("k"), Token: anyToken, Peer: "c", Timeout: transfer.Second},
		"a drop":  &transfer.DropOp{Key: []byte("k"), Token: anyToken, Peer: "c", Timeout: transfer.Second},
	} {
		a := newAsking(t, transfer.Worker)
		a.step(1, transfer.Submit{Session: 1, UserData: 1, Op: op})
		if a.step(2*transfer.Second, transfer.Tick{}); a.end == "" {
			t.Errorf("%s has not ended in its time", name)
		}
		for _, e := range a.m.Step(3*transfer.Second, transfer.PeerUp{Node: "c", Epoch: 2, Hints: []string{"c"}}) {
			if s, ok := e.(transfer.Send); ok {
				t.Errorf("%s has ended, and c is told %#v", name, s.Msg)
			}
		}
	}
}

// TestWhoIsPutOffAsksAgainInTime: not at once, and not never, whatever the other end wants.
func TestWhoIsPutOffAsksAgainInTime(t *testing.T) {
	why := transfer.Cause{Reason: transfer.Quota}
	take := func(retry transfer.Time) *asking {
		a := newAsking(t, transfer.Worker)
		a.step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.TakeOp{
			Key: []byte("k"), Token: anyToken, TakeID: 1, Peer: "b", LayerSlot: transfer.NoSlot, Timeout: 60 * transfer.Second, Blocks: blocksOf(0, 10),
		}})
		a.hears(&transfer.MsgRefuse{Xfer: a.xfer, Cause: why, Retry: retry})
		return a
	}
	get := func(retry transfer.Time) *asking {
		a := newAsking(t, transfer.Endpoint)
		a.step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindSelect, Name: "l", Peer: "b"}})
		a.step(1, transfer.Submit{Session: 1, UserData: 2, Op: &transfer.GetOp{
			Target: 1, Match: transfer.MatchPrefix, Tokens: make([]uint32, 100), Room: 10, Timeout: 60 * transfer.Second, Blocks: blocksOf(0, 10),
		}})
		a.hears(&transfer.MsgSeekRefuse{Xfer: a.xfer, Cause: why, Retry: retry})
		return a
	}
	for what, ask := range map[string]func(transfer.Time) *asking{"a take": take, "a get": get} {
		for _, c := range []struct{ retry, from, to transfer.Time }{
			{1, transfer.Second / 2, 2 * transfer.Second}, {3600 * transfer.Second, 7 * transfer.Second, 9 * transfer.Second},
		} {
			a := ask(c.retry)
			asks := func(at transfer.Time) bool {
				a.xfer = 0
				a.step(at, transfer.Tick{})
				return a.xfer != 0
			}
			if asks(c.from) || !asks(c.to) {
				t.Errorf("%s, put off for %d ns: want it to ask again between %d and %d", what, c.retry, c.from, c.to)
			}
		}
	}
}

// TestAWatchOfWhoIsNotKnownFails: it has not been cancelled by anybody.
func TestAWatchOfWhoIsNotKnownFails(t *testing.T) {
	e := newEnds(t, nil)
	e.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 100})
	watch := e.submit(1, &transfer.WatchOp{Key: []byte("k"), Token: anyToken, Peer: "nobody", Timeout: transfer.Second})
	e.step(transfer.DialFailed{Hint: "nobody", Final: true, Cause: transfer.Cause{Reason: transfer.NotFound, Text: "no peer of that name"}})
	e.is(watch, transfer.Failed, transfer.NotFound, "no peer of that name")
}

// TestAPeerThatDoesNotAnswerInTime: of which nothing was heard, neither good nor bad.
func TestAPeerThatDoesNotAnswerInTime(t *testing.T) {
	e := newEnds(t, nil)
	e.step(transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 100})
	e.step(transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
	take := e.take(1, "k", "x", 0, 1)
	e.pass(6 * transfer.Second)
	e.is(take, transfer.Failed, transfer.Timeout, `peer "x" was not reached within 5s`)
}
