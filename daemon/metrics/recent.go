package metrics

import (
	"context"
	"time"
)

// A snapshot is work on the turn of the driver, which does all work of engines, and whoever can connect may ask for metrics all the time. So
// one is taken at a time, and serves whoever asks within tenfold the time that it took: snapshots have an eleventh of the driver's time at most.
const (
	shareOfTime = 10
	maxAge      = time.Second // of a snapshot that took long
)

type recent struct {
	source func(context.Context) (Snapshot, error)
	turn   chan struct{} // of one that looks

	last  Snapshot
	taken time.Time
	keep  time.Duration
}

func newRecent(source func(context.Context) (Snapshot, error)) *recent {
	return &recent{source: source, turn: make(chan struct{}, 1)}
}

// get returns a snapshot, which is not to be changed.
func (r *recent) get(ctx context.Context) (Snapshot, error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return Snapshot{}, context.Cause(ctx)
	}
	defer func() { <-r.turn }()
	began := time.Now()
	if began.Sub(r.taken) < r.keep {
		return r.last, nil
	}
	s, err := r.source(ctx)
	if err == nil {
		r.last, r.taken = s, time.Now()
		r.keep = min(shareOfTime*r.taken.Sub(began), maxAge)
	}
	return s, err
}
