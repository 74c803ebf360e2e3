package transfer_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestOnlyMemoryOfTheLayoutIsLookedFor: each operation asks whether the layout's memory is there. A client may have a thousand other regions without
// memory, which no operation looks at, nor through the views of its layout for them: that took milliseconds each time.
func TestOnlyMemoryOfTheLayoutIsLookedFor(t *testing.T) {
	const named, others = layout.RegionID(1), 1023
	for _, before := range []bool{false, true} { // the layout is set before memory is given up, or by a session that comes back without it
		e := newEnds(t, nil)
		e.step(transfer.SessionOpened{Session: 1, Engine: "e", Instance: "i", Role: transfer.Worker, Credits: 1000})
		invalidate := func(r layout.RegionID) { e.step(transfer.RegionInvalidated{Session: 1, Region: r}) }
		looks := func(want int) {
			t.Helper()
			if n := e.m.Away(1); n != want {
				t.Errorf("layout first %v: an operation looks at %d regions, want %d", before, n, want)
			}
		}
		set := func() { e.step(transfer.LayoutSet{Session: 1, Layout: oneRank(t)}) }
		if before {
			set()
		}
		for r := range layout.RegionID(others) {
			invalidate(named + 1 + r)
		}
		invalidate(named)
		invalidate(named)
		if !before {
			looks(0)
			set()
		}
		looks(1)
		e.is(e.offer(1, "k", 0, 1), transfer.Failed, transfer.Unavailable, "region 0x1 of the layout of rank 0 is invalid")
		e.step(transfer.RegionRevalidated{Session: 1, Region: named + 1})
		looks(1)
		e.step(transfer.RegionRevalidated{Session: 1, Region: named})
		looks(0)
		e.runs(e.offer(1, "k", 0, 1))
		invalidate(named)
		looks(1)
		e.step(transfer.RegionRemoved{Session: 1, Region: named})
		looks(0)
		e.is(e.offer(1, "l", 0, 1), transfer.Failed, transfer.NotFound, "region 0x1 of the layout of rank 0 is gone")
	}
}
