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

	spot   int    // where its destination lies
	number uint64 // its place in the order of all tasks
}

// queue hands tasks to workers, oldest first as long as no worker has to leave its spot for that. There is one lane for
// each spot, and one for tasks that may run anywhere; where there is no choice of spots, all tasks are in that one. The
// queue keeps used tasks, so nothing is allocated per slice.
type queue struct {
	mu     sync.Mutex
	lanes  []lane
	pushed uint64 // tasks so far
	count  int
	free   *task
	closed bool
	roll   roll
}

// lane is the tasks for one spot, and the idle workers there.
type lane struct {
	first, last *task
	filled      sync.Cond
	idle        int
}

// laneOf returns the lane of a spot.
func laneOf(spot int) int { return spot + 1 }

// patience is how many tasks may overtake one that waits for a worker of another spot, before a worker moves there.
const patience = 16

func (q *queue) init(spots int) {
	q.lanes = make([]lane, 1+spots)
	for i := range q.lanes {
		q.lanes[i].filled.L = &q.mu
	}
}

// push queues a task for a spot and wakes an idle worker, at that spot if there is one.
func (q *queue) push(tk *task, spot int) {
	q.mu.Lock()
	l := &q.lanes[laneOf(spot)]
	tk.spot, tk.number = spot, q.pushed
	q.pushed++
	if l.first == nil {
		l.first = tk
	} else {
		l.last.next = tk
	}
	l.last = tk
	q.count++
	for i := 0; l.idle == 0 && i < len(q.lanes); i++ {
		l = &q.lanes[i]
	}
	if l.idle > 0 {
		l.idle--
		l.filled.Signal() // with the lock held: after a wakeAll in between, this could wake a worker that counts as idle again
	}
	q.mu.Unlock()
}

// pop waits for a task. If there is none, w first reports what it copied. pop returns nil once the queue is closed.
func (q *queue) pop(w *worker) *task {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.roll.answer(w)
	if q.count == 0 {
		q.mu.Unlock()
		w.flush()
		q.mu.Lock()
	}
	for q.count == 0 && !q.closed {
		q.roll.answer(w) // before each wait: a call may have come meanwhile
		l := &q.lanes[laneOf(w.at)]
		l.idle++
		l.filled.Wait()
	}
	if q.closed {
		return nil
	}
	l := q.next(laneOf(w.at))
	tk := l.first
	l.first, tk.next = tk.next, nil
	q.count--
	return tk
}

// next chooses the lane to take from: the worker's own, unless a task of another lane has waited too long. At least one
// lane must not be empty.
func (q *queue) next(own int) *lane {
	var best *lane
	var age uint64
	for i := range q.lanes {
		l := &q.lanes[i]
		if l.first == nil {
			continue
		}
		n := l.first.number
		if i != own && i != 0 {
			n += patience
		}
		if best == nil || n < age {
			best, age = l, n
		}
	}
	return best
}

// close wakes the workers for the last time. The fences of their legs must end tasks that are still queued.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wakeAll()
}

// wakeAll wakes every waiting worker. It is called with the lock held.
func (q *queue) wakeAll() {
	for i := range q.lanes {
		q.lanes[i].idle = 0
		q.lanes[i].filled.Broadcast()
	}
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

// recycle takes back a task that has ended, and drops its references.
func (q *queue) recycle(tk *task) {
	tk.job, tk.dst = transport.Job{}, nil
	q.mu.Lock()
	tk.next, q.free = q.free, tk
	q.mu.Unlock()
}
