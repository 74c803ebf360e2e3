package transfer_test

import (
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAnEndWithManyItemsCostsNoMore: there may be hundreds of thousands of them, and a client may open its end once more, in vain, or give
// its memory up and have it back as often as it likes. All others wait meanwhile.
func TestAnEndWithManyItemsCostsNoMore(t *testing.T) {
	for name, ask := range map[string]func(*ends){
		"opened again":    func(e *ends) { e.submit(1, recv) },
		"its memory goes": func(e *ends) { e.step(transfer.RegionInvalidated{Session: 1, Region: 1}) },
		"and comes and goes": func(e *ends) {
			e.step(transfer.RegionInvalidated{Session: 1, Region: 1})
			e.step(transfer.RegionRevalidated{Session: 1, Region: 1})
		},
	} {
		cost := func(items int) time.Duration {
			e := newEnds(t, nil)
			tx := e.open(1, send)
			for range items {
				e.put(1, tx, 0, 0, "")
			}
			return leastOf10(func(int) func() {
				e.done = nil
				return func() {
					for range 100 {
						ask(e)
					}
				}
			})
		}
		if one, many := cost(1), cost(20000); many > 20*one {
			t.Errorf("%s: 100 times take %v with one item in it, and %v with 20000", name, one, many)
		}
	}
}

// TestItemsWithoutBytesEndWithTheirEnd, and not with its memory, which they do not need.
func TestItemsWithoutBytesEndWithTheirEnd(t *testing.T) {
	e := newEnds(t, nil)
	tx, rx := e.open(1, send), e.open(2, recv)
	none, some, last := e.put(1, tx, 0, 0, "none"), e.put(1, tx, 0, 10, "some"), e.put(1, tx, 0, 0, "last")
	e.step(transfer.RegionInvalidated{Session: 1, Region: 1})
	e.is(some, transfer.Failed, transfer.Unavailable, "was invalidated")
	e.runs(none, last, tx)
	e.isDone(e.get(2, rx, 0, 0, 0))
	e.isDone(none)
	e.step(transfer.SessionClosed{Session: 1, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "killed"}})
	e.isDone(e.get(2, rx, 2, 0, 0)) // it was put before
	e.is(e.get(2, rx, 3, 0, 0), transfer.Failed, transfer.PeerGone, "killed")
	e.step(transfer.SessionClosed{Session: 2, Cause: transfer.Cause{Reason: transfer.Closed, Text: "closed"}})
	if s := e.m.Snapshot(); len(s.Sessions) > 0 || len(s.Pipes) > 0 {
		t.Errorf("left behind: %+v", s)
	}

	own := e.open(3, &transfer.BindOp{Kind: transfer.BindOwn, Name: "b", Capacity: 1000})
	e.submit(3, &transfer.PutOp{Target: own, Form: transfer.MatchAny})
	e.isDone(e.submit(3, &transfer.CancelOp{Target: own}))
	again := e.submit(3, &transfer.BindOp{Kind: transfer.BindOwn, Name: "b", Capacity: 1000}) // its end is over, so it may be another one
	e.runs(again)
	e.is(e.submit(3, recv), transfer.Failed, transfer.Invalid, "is an end already")
}
