package daemon

import (
	"math"
	"testing"
)

// TestHeap: a daemon that polls has more than others, and each what its limit has room for.
func TestHeap(t *testing.T) {
	for _, c := range []struct {
		mode  string
		limit int64
		want  heap
	}{
		{"event", math.MaxInt64, eventHeap},
		{"busy", math.MaxInt64, busyHeap}, // no limit
		{"busy", 512 << 20, busyHeap},
		{"busy", 256 << 20, busyHeap},
		{"busy", 256<<20 - 1, eventHeap},
		{"event", 88 << 20, eventHeap},
		{"event", 88<<20 - 1, smallHeap},
		{"busy", 64 << 20, smallHeap},
	} {
		if got := heapFor(c.mode, c.limit); got != c.want {
			t.Errorf("%s, %d bytes: %+v, want %+v", c.mode, c.limit, got, c.want)
		}
	}
}
