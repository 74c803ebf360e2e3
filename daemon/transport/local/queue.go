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

	spot   int    // where its destination is
	number uint64 // in the order of tasks
}

// queue hands tasks to workers, oldest first as long as that costs no worker its place: there is a lane for each spot, and one for tasks
// that are as well off anywhere, which is all of them where there is nothing to choose. It keeps used tasks, so that nothing is
// allocated per slice.
type queue struct {
	mu     sync.Mutex
	lanes  []lane
	pushed uint64 // tasks so far
	count  int
	free   *task
	closed bool
	roll   roll
}

// lane is the tasks for one spot, and the workers there that have nothing to do.
type lane struct {
	first, last *task
	filled      sync.Cond
	idle        int
}

// laneOf is the lane of a spot.
func laneOf(spot int) int { return spot + 1 }

// patience is how many tasks may overtake one that waits for a worker of another spot, before a worker goes there.
const patience = 16

func (q *queue) init(spots int) {
	q.lanes = make([]lane, 1+spots)
	for i := range q.lanes {
		q.lanes[i].filled.L = &q.mu
	}
}

// push queues a task for a spot, and wakes a worker: one that is there, if one has nothing to do.
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
		l.filled.Signal() // with the lock held: wakeAll in between would have somebody counted idle who is woken by this
	}
	q.mu.Unlock()
}

// pop waits for a task, after w has reported what it copied when there is none. It returns nil once the queue is closed.
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
		q.roll.answer(w) // each time: a call may have come before the wait
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

// next chooses the lane to take from, of which one is not empty: the own one, unless others have waited too long.
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

// close wakes the workers for the last time. Tasks still queued have to be ended by their legs' fences.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wakeAll()
}

// wakeAll wakes every worker that waits. It is called with the lock held.
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

// recycle takes back a task that has ended, and lets go of what it refers to.
func (q *queue) recycle(tk *task) {
	tk.job, tk.dst = transport.Job{}, nil
	q.mu.Lock()
	tk.next, q.free = q.free, tk
	q.mu.Unlock()
}
