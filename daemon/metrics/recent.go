package metrics

import (
	"context"
	"time"
)

// A snapshot is work on the turn of the driver, which does all work of engines, and whoever can connect may ask for
// metrics all the time. So only one is taken at a time, and it serves whoever asks within tenfold the time that it
// took, up to maxAge. Unless they take longer than a tenth of maxAge, snapshots use at most an eleventh of the driver's
// time.
const (
	shareOfTime = 10
	maxAge      = time.Second // of any snapshot, however long it took
)

type recent struct {
	source func(context.Context) (Snapshot, error)
	turn   chan struct{} // held by the caller that looks

	last  Snapshot
	taken time.Time
	keep  time.Duration
}

func newRecent(source func(context.Context) (Snapshot, error)) *recent {
	return &recent{source: source, turn: make(chan struct{}, 1)}
}

// get returns a snapshot, which must not be changed.
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
