package daemon

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// logWait is how long a record may take to be written.
const logWait = time.Second

// patientHandler hands records to another handler, and on when that takes too long: a journal that hangs, or a full pipe that nobody reads, costs
// records, which are counted, and not the daemon, of which everything logs.
type patientHandler struct {
	slog.Handler
	gate *gate
}

// gate lets one record through at a time.
type gate struct {
	wait  time.Duration
	turn  chan struct{} // has one while a record is written
	since atomic.Int64  // when that began, Unix nanoseconds
	lost  atomic.Uint64 // records that were not written
}

func patient(h slog.Handler) patientHandler {
	return patientHandler{h, &gate{wait: logWait, turn: make(chan struct{}, 1)}}
}

func (p patientHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return patientHandler{p.Handler.WithAttrs(as), p.gate}
}

func (p patientHandler) WithGroup(name string) slog.Handler {
	return patientHandler{p.Handler.WithGroup(name), p.gate}
}

// Handle returns when the record is written, or does not get its turn or its end in time.
func (p patientHandler) Handle(ctx context.Context, r slog.Record) error {
	if !p.gate.enter() {
		p.gate.lost.Add(1)
		return nil
	}
	done := make(chan error, 1)
	go func() {
		defer p.gate.leave()
		if n := p.gate.lost.Swap(0); n > 0 {
			lost := slog.NewRecord(time.Now(), slog.LevelError, "the log was not taken in time: records are missing here", 0)
			lost.Add("records", n)
			_ = p.Handler.Handle(ctx, lost)
		}
		done <- p.Handler.Handle(ctx, r.Clone())
	}()
	t := time.NewTimer(p.gate.wait)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return nil // it is written when it can be
	}
}

// enter waits for its turn, unless the record that is being written takes too long already.
func (g *gate) enter() bool {
	select {
	case g.turn <- struct{}{}:
	default:
		t := time.NewTimer(max(g.wait-time.Since(time.Unix(0, g.since.Load())), 0))
		defer t.Stop()
		select {
		case g.turn <- struct{}{}:
		case <-t.C:
			return false
		}
	}
	g.since.Store(time.Now().UnixNano())
	return true
}

func (g *gate) leave() { <-g.turn }
