package daemon

import (
	"math"
	"testing"
)

// TestADaemonThatPollsHasMoreHeap where its limit has room for that.
func TestADaemonThatPollsHasMoreHeap(t *testing.T) {
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
		{"busy", 64 << 20, eventHeap},
	} {
		if got := heapFor(c.mode, c.limit); got != c.want {
			t.Errorf("%s, %d bytes: %+v, want %+v", c.mode, c.limit, got, c.want)
		}
	}
}
