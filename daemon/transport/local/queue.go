package local

import (
	"sync"

	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/fence"
)

// task is a posted slice.
type task struct {
	fence.Slice
	job  transport.Job    // of the producer's end
	dst  transport.Memory // of the consumer's end
	next *task
}

// queue hands tasks to workers, oldest first. It keeps used tasks, so that nothing is allocated per slice.
type queue struct {
	mu          sync.Mutex
	filled      sync.Cond
	first, last *task
	count       int
	free        *task
	closed      bool
	roll        roll
}

func (q *queue) init() { q.filled.L = &q.mu }

func (q *queue) push(tk *task) {
	q.mu.Lock()
	if q.first == nil {
		q.first = tk
	} else {
		q.last.next = tk
	}
	q.last = tk
	q.count++
	q.mu.Unlock()
	q.filled.Signal()
}

// pop waits for a task, after w has reported what it copied when there is none. It returns nil once the queue is closed.
func (q *queue) pop(w *worker) *task {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.roll.answer(w)
	if q.first == nil {
		q.mu.Unlock()
		w.flush()
		q.mu.Lock()
	}
	for q.first == nil && !q.closed {
		q.roll.answer(w) // each time: a call may have come before the wait
		q.filled.Wait()
	}
	if q.closed {
		return nil
	}
	tk := q.first
	q.first, tk.next = tk.next, nil
	q.count--
	return tk
}

// close wakes the workers for the last time. Tasks still queued have to be ended by their legs' fences.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.filled.Broadcast()
}

func (q *queue) spare() *task {
	q.mu.Lock()
	defer q.mu.Unlock()
	tk := q.free
	if tk == nil {
		return new(task)
	}
	q.free, tk.next = tk.next, nil
	return tk
}

// recycle takes back a task that has ended, and lets go of what it refers to.
func (q *queue) recycle(tk *task) {
	tk.job, tk.dst = transport.Job{}, nil
	q.mu.Lock()
	tk.next, q.free = q.free, tk
	q.mu.Unlock()
}
