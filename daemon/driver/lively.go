package driver

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// lively keeps the Go runtime from falling into its deepest sleep between two events that follow each other closely. It would
// have to be woken from that by the next system call, which is the one that wakes a client or sends to a peer: several
// microseconds, and a thread that runs just when the answer is due. While there is something to do now and then one thread sits in
// a short sleep of the kernel, which the runtime takes for work.
type lively struct {
	seen atomic.Bool // something was done since the last look
	woke chan struct{}
	on   atomic.Bool
	nap  func()
}

const (
	livelyNap  = 8 * time.Millisecond // below the 10 ms after which the runtime takes note
	livelyIdle = 4                    // naps during which nothing was done, after which it ends
)

func (l *lively) init() {
	l.woke = make(chan struct{}, 1)
	l.nap = func() { sys.Nap(livelyNap) }
}

// stir is told of each turn.
func (l *lively) stir() {
	if l.seen.Load() {
		return
	}
	l.seen.Store(true)
	l.call()
}

// call has run begin, unless it is on: then it looks at seen once more when it no longer is.
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
			runtime.Gosched() // one that never lets others on is taken its processor, and the runtime watches closely again
		}
		l.on.Store(false)
		if l.seen.Load() { // since the last look: stir saw on, and will not call again
			l.call()
		}
	}
}
