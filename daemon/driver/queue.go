package driver

import (
	"sync"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// item is an event or a function to run between events.
type item struct {
	ev transfer.Event
	fn func()
}

// queue is an unbounded multi-producer queue. It must not block: the driver itself pushes while it executes effects (a
// slice copied at once reports at once). What bounds it are the credits of sessions and the posting window.
type queue struct {
	mu      sync.Mutex
	items   []item
	signal  chan struct{} // capacity 1
	stopped chan struct{}
}

func (q *queue) init() {
	q.signal = make(chan struct{}, 1)
	q.stopped = make(chan struct{})
}

func (q *queue) push(it item) {
	q.mu.Lock()
	q.items = append(q.items, it)
	first := len(q.items) == 1
	q.mu.Unlock()
	if first {
		select {
		case q.signal <- struct{}{}:
		default:
		}
	}
}

// take returns all queued items and keeps spare (emptied) as the next buffer.
func (q *queue) take(spare []item) []item {
	q.mu.Lock()
	defer q.mu.Unlock()
	got := q.items
	q.items = spare[:0]
	return got
}

func (q *queue) stop() { close(q.stopped) }
