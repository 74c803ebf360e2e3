package driver

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// lively keeps the Go runtime from its deepest sleep between two events that follow each other closely. The next system
// call would have to wake it: the one that wakes a client or sends to a peer. That would take several microseconds, and
// start a thread just when the answer is due. So while there is something to do now and then, one thread naps in the
// kernel, which the runtime takes for work.
type lively struct {
	seen atomic.Bool // something was done since run last looked
	woke chan struct{}
	on   atomic.Bool
	nap  func()
}

const (
	livelyNap  = 8 * time.Millisecond // less than the 10 ms after which the runtime would take notice
	livelyIdle = 4                    // ends after so many naps without anything done
)

func (l *lively) init() {
	l.woke = make(chan struct{}, 1)
	l.nap = func() { sys.Nap(livelyNap) }
}

// stir notes that there is something to do.
func (l *lively) stir() {
	if l.seen.Load() {
		return
	}
	l.seen.Store(true)
	l.call()
}

// call makes run begin. If run is on, nothing is needed: it checks seen once more when it stops.
func (l *lively) call() {
	if l.on.Load() {
		return
	}
	select {
	case l.woke <- struct{}{}:
	default:
	}
}

func (l *lively) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-l.woke:
		}
		l.on.Store(true)
		for idle := 0; idle < livelyIdle; idle++ {
			if l.seen.Swap(false) {
				idle = 0
			}
			l.nap()
			runtime.Gosched() // a goroutine that never yields loses its P, and then the runtime watches closely again
		}
		l.on.Store(false)
		if l.seen.Load() { // set since the last look; stir saw on and does not call again
			l.call()
		}
	}
}
