package driver

import (
	"sync"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// item is an event, or a function to run between events.
type item struct {
	ev transfer.Event
	fn func()
}

// queue is an unbounded queue with many producers. It must not block, since the goroutine that executes effects pushes
// too: a slice copied at once reports at once. Its length is bounded by the credits of sessions, by the posting window,
// and because a channel is read only as fast as the queue is worked off.
type queue struct {
	mu      sync.Mutex
	items   []item
	stopped chan struct{}
}

func (q *queue) init() { q.stopped = make(chan struct{}) }

func (q *queue) push(it item) {
	q.mu.Lock()
	q.items = append(q.items, it)
	q.mu.Unlock()
}

// take returns all queued items, and keeps spare, emptied, as the next buffer.
func (q *queue) take(spare []item) []item {
	q.mu.Lock()
	got := q.items
	q.items = spare[:0]
	q.mu.Unlock()
	return got
}

func (q *queue) empty() bool {
	q.mu.Lock()
	n := len(q.items)
	q.mu.Unlock()
	return n == 0
}

func (q *queue) stop() { close(q.stopped) }
