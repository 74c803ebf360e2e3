package local

// roll is a roll call: every worker answers that it is there. The queue's lock guards its fields.
type roll struct {
	round   int           // number of the call; a worker keeps that of the last one it answered
	missing int           // workers that have not answered
	done    chan struct{} // closed when nobody is missing
}

// call begins a round among n workers and wakes those that wait. The returned channel is closed when all have answered.
// A new call replaces one for which nobody waits any more.
func (q *queue) call(n int) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.roll.round++
	q.roll.missing, q.roll.done = n, make(chan struct{})
	q.wakeAll()
	return q.roll.done
}

// silent returns how many workers have not answered.
func (q *queue) silent() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.roll.missing
}

// answer is called by every worker that passes, with the queue's lock held.
func (r *roll) answer(w *worker) {
	if w.round == r.round {
		return
	}
	w.round = r.round
	if r.missing--; r.missing == 0 {
		close(r.done)
	}
}
