package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestReservationsOfAnEndAreBounded: GETs that have no room for what they find end at once, and leave it reserved. An end that lets them go on
// and on is refused at as many as it may have operations, until it receives or declines some, or their time is over.
func TestReservationsOfAnEndAreBounded(t *testing.T) {
	const limit = 100
	e := newEnds(t, func(c *transfer.Config) { c.MaxOps = limit })
	own := e.open(1, &transfer.BindOp{Kind: transfer.BindOwn, Name: "n", Capacity: 1 << 16})
	e.step(transfer.SessionOpened{Session: 2, Engine: "e", Owner: "o", Role: transfer.Endpoint, Credits: 1 << 20})
	e.step(transfer.LayoutSet{Session: 2, Layout: arena(t, 1)})
	one := e.submit(2, &transfer.BindOp{Kind: transfer.BindSelect, Name: "n"})
	other := e.open(3, &transfer.BindOp{Kind: transfer.BindSelect, Name: "n"})
	e.submit(1, &transfer.PutOp{Target: own, Form: transfer.MatchKey, Key: []byte("k"), Bytes: 256, Blocks: blocksOf(0, 256)})
	get := func(s transfer.SessionID, target uint64) uint64 {
		return e.submit(s, &transfer.GetOp{Target: target, Match: transfer.MatchKey, Key: []byte("k"), Timeout: 60 * transfer.Second})
	}
	reserved := func(match transfer.Match, item uint64) uint64 {
		return e.submit(2, &transfer.GetOp{Target: one, Match: match, Seq: item, Room: 256, Timeout: transfer.Second, Blocks: blocksOf(0, 256)})
	}
	var items []uint64
	for range limit {
		items = append(items, e.isDone(get(2, one)).Got.Item)
	}
	const says = "buffer \"n\": 100 items are reserved for this end, for which its gets had no room, the limit is limits.inflight = 100: receive or decline some of them"
	for range 10000 {
		e.is(get(2, one), transfer.Failed, transfer.Quota, says)
	}
	e.isDone(get(3, other))

	e.isDone(reserved(transfer.MatchDecline, items[50]))
	e.isDone(reserved(transfer.MatchItem, items[99]))
	e.isDone(get(2, one))
	e.isDone(get(2, one))
	e.is(get(2, one), transfer.Failed, transfer.Quota, says)

	e.pass(61 * transfer.Second)
	e.isDone(get(2, one))
	e.is(reserved(transfer.MatchItem, items[0]), transfer.Failed, transfer.NotFound, "")
}

// TestReservationsOfAPipeAreBounded: an item that is asked for again, because there was no room for it, is reserved once.
func TestReservationsOfAPipeAreBounded(t *testing.T) {
	e := newEnds(t, func(c *transfer.Config) { c.MaxOps = 3 })
	tx, rx := e.open(1, send), e.open(2, recv)
	for i := range uint32(4) {
		e.put(1, tx, i, block, "")
	}
	for range 2 {
		for seq := range uint64(3) {
			e.isDone(e.get(2, rx, seq, 0, 0))
		}
	}
	e.is(e.get(2, rx, 3, 0, 0), transfer.Failed, transfer.Quota, "3 items are reserved for this end")
	e.isDone(e.get(2, rx, 0, 0, block))
	e.isDone(e.get(2, rx, 3, 0, 0))
}

// TestWhatIsReservedGoesBackWithItsEnd, all of it.
func TestWhatIsReservedGoesBackWithItsEnd(t *testing.T) {
	e := newEnds(t, nil)
	own := e.open(1, &transfer.BindOp{Kind: transfer.BindOwn, Name: "n", Capacity: 1 << 16})
	one := e.open(2, &transfer.BindOp{Kind: transfer.BindSelect, Name: "n"})
	other := e.open(3, &transfer.BindOp{Kind: transfer.BindSelect, Name: "n"})
	for i := range uint32(3) {
		e.submit(1, &transfer.PutOp{Target: own, Form: transfer.MatchAny, Bytes: block, Blocks: blocksOf(i, block)})
	}
	for range 3 {
		e.isDone(e.submit(2, &transfer.GetOp{Target: one, Match: transfer.MatchAny, Timeout: 60 * transfer.Second}))
	}
	e.isDone(e.submit(2, &transfer.CancelOp{Target: one}))
	for range 3 {
		e.isDone(e.submit(3, &transfer.GetOp{Target: other, Match: transfer.MatchAny, Room: block, Timeout: transfer.Second, Blocks: blocksOf(0, block)}))
	}
}
