package daemon

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	logWait = time.Second // how long a caller waits for its record to be written
	logRoom = 1024        // records that may wait to be written
)

// patientHandler hands records to another handler, one after the other, but its callers do not wait for ever. A journal
// that hangs, or a full pipe that nobody reads, costs records, which are counted. It does not hold up the daemon, all
// of whose parts log. A log that is only slow, as everything is where no processor is free, costs no records.
type patientHandler struct {
	slog.Handler
	queue *queue
}

// queue is what is not written yet.
type queue struct {
	wait time.Duration
	room int

	mu      sync.Mutex
	entries []queued // the first is being written
	late    bool     // somebody has waited too long, and nothing has been written since
	lost    uint64   // records for which there was no room
}

type queued struct {
	to     slog.Handler
	record slog.Record
	lost   uint64     // how many records are missing before it
	done   chan error // has room for one
}

func patient(h slog.Handler) patientHandler {
	return patientHandler{h, &queue{wait: logWait, room: logRoom}}
}

func (p patientHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return patientHandler{p.Handler.WithAttrs(as), p.queue}
}

func (p patientHandler) WithGroup(name string) slog.Handler {
	return patientHandler{p.Handler.WithGroup(name), p.queue}
}

// Handle returns when the record is written, or when that takes too long; then the record is written as soon as it can
// be.
func (p patientHandler) Handle(_ context.Context, r slog.Record) error {
	done := p.queue.put(p.Handler, r)
	if done == nil {
		return nil
	}
	t := time.NewTimer(p.queue.wait)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		p.queue.mu.Lock()
		p.queue.late = true
		p.queue.mu.Unlock()
		return nil
	}
}

// put queues a record, if there is room. It returns what to wait for, or nil for nothing.
func (q *queue) put(to slog.Handler, r slog.Record) <-chan error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.entries) >= q.room {
		q.lost++
		return nil
	}
	e := queued{to, r.Clone(), q.lost, make(chan error, 1)}
	q.lost = 0
	q.entries = append(q.entries, e)
	if len(q.entries) == 1 {
		go q.write()
	}
	if q.late {
		return nil
	}
	return e.done
}

// write writes records until none is left.
func (q *queue) write() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.entries) > 0 {
		e := q.entries[0]
		q.mu.Unlock()
		if e.lost > 0 {
			lost := slog.NewRecord(time.Now(), slog.LevelError, "the log was not taken in time: records are missing here", 0)
			lost.Add("records", e.lost)
			_ = e.to.Handle(context.Background(), lost)
		}
		err := e.to.Handle(context.Background(), e.record)
		q.mu.Lock()
		q.entries, q.late = slices.Delete(q.entries, 0, 1), false
		e.done <- err
	}
}
