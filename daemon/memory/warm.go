package memory

import (
	"sync"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// warmStep is how much is warmed or unloaded at a time. Removing a region waits for one step of warming at most.
const warmStep = 16 << 20

// warmer fills the page tables of a new region, so that the first transfers do not pay a page fault for every few
// blocks. The pages themselves are there already; registration checked that.
type warmer struct {
	stop, done chan struct{}
	once       sync.Once
}

func warm(b []byte) *warmer {
	w := &warmer{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for len(b) > 0 {
			select {
			case <-w.stop:
				return
			default:
			}
			n := min(warmStep, len(b))
			if sys.Populate(b[:n], false) != nil {
				return // an old kernel, or the client punched holes; copies survive those
			}
			b = b[n:]
		}
	}()
	return w
}

// end stops the warmer. When it returns, the warmer touches the region no more.
func (w *warmer) end() {
	w.once.Do(func() { close(w.stop) })
	<-w.done
}
