package local

import (
	"sync/atomic"
	"time"
)

// rate is a moving average of how fast one worker copies, in bytes per second.
type rate struct{ avg, bytes, slices atomic.Uint64 }

// weight: a new slice counts 1/weight in the average.
const weight = 16

// count notes a slice of which n bytes were copied.
func (r *rate) count(n uint64) {
	if n == 0 {
		return
	}
	r.bytes.Add(n)
	r.slices.Add(1)
}

func (r *rate) sample(n uint64, took time.Duration) {
	now := uint64(float64(n) / max(took, time.Nanosecond).Seconds())
	// Two workers at once may lose a sample; the average can bear that.
	if old := r.avg.Load(); old != 0 {
		now = old - old/weight + now/weight
	}
	r.avg.Store(now)
}

func (r *rate) gbps() float64 { return float64(r.avg.Load()) / 1e9 }

// Stats are counters since the start. They include slices that were copied only in part.
type Stats struct{ Bytes, Slices uint64 }

// Stats returns the counters. Any goroutine may call it.
func (t *Transport) Stats() Stats {
	return Stats{Bytes: t.rate.bytes.Load(), Slices: t.rate.slices.Load()}
}
