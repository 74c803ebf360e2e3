package driver

import (
	"sync"
	"sync/atomic"
)

// turn says whose turn it is to run the machine. The goroutine of Run takes the turn when it is woken. Others may take
// it in passing.
type turn struct {
	mu     sync.Mutex
	active atomic.Bool // the holder of mu will look at the queue once more before it leaves
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

// take runs drain if nobody has the turn, and wakes the goroutine of Run if something is left. Whoever pushes while
// active is set relies on the holder, even after drain's last look at the queue; so the holder looks once more after it
// clears active. It sets active again before it drains again: otherwise each push meanwhile would wake the goroutine of
// Run, which could not take the turn.
func (t *turn) take(drain func() (more bool), empty func() bool) {
	if !t.mu.TryLock() {
		// The holder will look again, unless it was just about to leave.
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

// end lets nobody run the machine any more, and waits until nobody does.
func (t *turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}
