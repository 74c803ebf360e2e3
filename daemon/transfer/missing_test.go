package transfer

import (
	"runtime"
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// TestWhatManySegmentsLack: however many segments lack a few blocks, or the same ones, it does not cost a copy of all that are missing for each.
func TestWhatManySegmentsLack(t *testing.T) {
	const n = 1 << 16
	var odd, want []layout.Run
	lacks := make([]bool, 2*n)
	for i := range uint32(n) {
		odd = append(odd, layout.Run{First: 2*i + 1, Count: 1})
		lacks[2*i+1] = true
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var x take
	x.lack(odd)
	for i := range uint32(maxSegs - 1) {
		id := i / 2 * 4 // two segments lack the same block
		x.lack([]layout.Run{{First: id, Count: 1}})
		lacks[id] = true
	}
	x.gather()
	runtime.ReadMemStats(&after)
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(16*12*n); took > most {
		t.Errorf("%d bytes were allocated, want %d at most", took, most)
	}
	for id, l := range lacks {
		if l {
			want = addRun(want, 0, uint32(id))
		}
	}
	if !slices.Equal(x.missing, want) {
		t.Errorf("%d runs are missing, from %v on, want %d from %v on", len(x.missing), x.missing[:4], len(want), want[:4])
	}
}
