package tcp

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestRunsAreLookedUpInTheirOwnRegion: only successive runs of one region and one rank are looked up together.
func TestRunsAreLookedUpInTheirOwnRegion(t *testing.T) {
	run := func(rank uint32, region layout.RegionID, off uint64) plan.Run {
		return plan.Run{Rank: rank, Region: region, Off: off, Len: 8}
	}
	p := pieces{runs: []plan.Run{run(0, 1, 16), run(0, 1, 0), run(0, 2, 8), run(1, 2, 8), run(0, 1, 32)}}
	var asked []plan.Run
	cause := p.resolve(func(r plan.Run) ([]byte, bool) { asked = append(asked, r); return make([]byte, r.Len), true }, "source")
	want := []plan.Run{{Region: 1, Len: 24}, run(0, 2, 8), run(1, 2, 8), run(0, 1, 32)}
	if cause.Reason != transfer.OK || !slices.Equal(asked, want) || sys.IovecBytes(p.iov) != 5*8 {
		t.Errorf("%v, looked up %+v, want %+v", cause, asked, want)
	}
}
