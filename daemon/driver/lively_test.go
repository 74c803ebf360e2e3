package driver

import (
	"runtime"
	"sync"
	"testing"
)

// TestLively: it naps while something is done, sleeps when nothing is, and ends when it is told to, from either.
func TestLively(t *testing.T) {
	var l lively
	l.init()
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { l.run(stop) })
	for range 2 {
		for !l.on.Load() {
			l.stir()
			runtime.Gosched()
		}
		for l.on.Load() { // nothing is done
			runtime.Gosched()
		}
	}
	for !l.on.Load() {
		l.stir()
		runtime.Gosched()
	}
	close(stop)
	done.Wait()
}
