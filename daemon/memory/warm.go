package memory

import (
	"sync"

	"github.com/kvpipe/kvpipe/internal/sys"
)

const (
	// warmStep is how much is warmed or unloaded at a time. Removing a region waits for one step of warming at most.
	warmStep = 16 << 20
	// warmAtOnce is how many regions of all sessions are warmed at a time: those of a usual node's ranks. Each takes a
	// thread and a CPU, and an engine may register a thousand.
	warmAtOnce = 8
)

// warmer fills the page tables of a new region, so that the first transfers do not pay a page fault for every few
// blocks. The pages themselves are there already; registration checked that.
type warmer struct {
	stop, done chan struct{}
	once       sync.Once
}

func (p *Pool) warm(b []byte) *warmer {
	w := &warmer{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for len(b) > 0 && w.begin(p.warming) {
			n := min(warmStep, len(b))
			err := p.populate(b[:n])
			<-p.warming
			if err != nil {
				return // an old kernel, or the client punched holes; copies survive those
			}
			b = b[n:]
		}
	}()
	return w
}

// begin waits until the next step may begin. It then holds a place in turns, which is to be taken out after the step.
// False: the warmer has to end.
func (w *warmer) begin(turns chan struct{}) bool {
	select {
	case <-w.stop:
		return false
	case turns <- struct{}{}:
	}
	select {
	case <-w.stop: // it was time for either
		<-turns
		return false
	default:
		return true
	}
}

func populate(b []byte) error { return sys.Populate(b, false) }

// end stops the warmer. When it returns, the warmer touches the region no more.
func (w *warmer) end() {
	w.once.Do(func() { close(w.stop) })
	<-w.done
}
