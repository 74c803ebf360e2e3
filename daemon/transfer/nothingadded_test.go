package transfer_test

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAnExtensionByNothingLooksAtNobody: a producer may say it as often as it likes, while thousands of takes wait under the key, so it costs no more
// than where one does. Whoever looks at those that wait makes their list anew, which shows as allocations. What seals is looked at.
func TestAnExtensionByNothingLooksAtNobody(t *testing.T) {
	allocs := func(waiting int) float64 {
		e := newEnds(t, func(c *transfer.Config) { c.AtOnce = 0 })
		for id := transfer.SessionID(1); id <= 3; id++ {
			e.step(transfer.SessionOpened{Session: id, Engine: fmt.Sprint("e", id), Instance: "i", Role: transfer.Worker, Credits: 1 << 16})
			e.step(transfer.LayoutSet{Session: id, Layout: arena(t, 1<<14)})
		}
		offer := e.submit(1, &transfer.OfferOp{Key: []byte("k"), Token: anyToken, Consumers: 1, Lease: 60 * transfer.Second, Blocks: blocksOf(0, 300)})
		var takes []uint64
		for i := range 1 + waiting { // the first is of the offer's only consumer
			takes = append(takes, e.submit(transfer.SessionID(2+min(i, 1)), &transfer.TakeOp{
				Key: []byte("k"), Token: anyToken, TakeID: uint64(i + 1), LayerSlot: transfer.NoSlot, Timeout: 60 * transfer.Second, Blocks: blocksOf(uint32(2*i), 300),
			}))
		}
		e.runs(takes...)
		ev := transfer.Submit{Session: 1, UserData: 1 << 40, Op: &transfer.ExtendOp{Target: offer}}
		if n := e.m.Snapshot().Parked; n != waiting {
			t.Fatalf("%d takes wait, want %d", n, waiting)
		}
		n := testing.AllocsPerRun(20, func() { e.m.Step(e.now, ev) })
		e.isDone(e.submit(1, &transfer.ExtendOp{Target: offer, Sealed: true}))
		e.isDone(takes[0])
		return n
	}
	if one, many := allocs(1), allocs(2000); many != one {
		t.Errorf("%v allocations where one take waits, and %v where 2000 do", one, many)
	}
}
