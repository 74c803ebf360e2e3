package local

// roll has every worker say that it is there. Its fields are guarded by the queue's lock.
type roll struct {
	round   int           // of the call; a worker has answered the one that it carries
	missing int           // workers that have not
	done    chan struct{} // closed when nobody is missing
}

// call begins a round among n workers and wakes those that wait. The channel is closed when all have answered; a call that nobody waits
// for any more is replaced by the next.
func (q *queue) call(n int) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.roll.round++
	q.roll.missing, q.roll.done = n, make(chan struct{})
	q.wakeAll()
	return q.roll.done
}

// silent counts who has not answered.
func (q *queue) silent() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.roll.missing
}

// answer is called by every worker that comes by, with the queue's lock held.
func (r *roll) answer(w *worker) {
	if w.round == r.round {
		return
	}
	w.round = r.round
	if r.missing--; r.missing == 0 {
		close(r.done)
	}
}
