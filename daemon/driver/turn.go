package driver

import (
	"sync"
	"sync/atomic"
)

// turn says whose turn it is to run the machine. The goroutine of Run takes it when it is woken; others may take it in passing.
type turn struct {
	mu     sync.Mutex
	active atomic.Bool // whoever has mu will look at the queue once more before it leaves
	over   bool        // guarded by mu
	wake   chan struct{}
}

func (t *turn) init() { t.wake = make(chan struct{}, 1) }

// nudge makes sure that somebody looks at the queue after now: the holder of the turn, or the goroutine of Run.
func (t *turn) nudge() {
	if t.active.Load() {
		return
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// take runs drain if it is nobody's turn, and wakes the goroutine of Run when something is left. A push between drain's last look at the
// queue and the end of active relies on this holder, hence the look after it. It does not drain before active is set again: for
// as long as that took, whoever pushes would wake the goroutine of Run, which could only go round.
func (t *turn) take(drain func() (more bool), empty func() bool) {
	if !t.mu.TryLock() {
		// The holder looks again, unless it was just about to leave.
		t.nudge()
		return
	}
	more := !t.over
	for range 2 {
		if !more {
			break
		}
		t.active.Store(true)
		left := drain()
		t.active.Store(false)
		if left {
			break
		}
		more = !empty()
	}
	t.mu.Unlock()
	if more {
		t.nudge()
	}
}

// end lets nobody run the machine any more, and returns when nobody does.
func (t *turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}
