package session

import (
	"runtime"
	"sync"
	"testing"
)

// TestLively: it naps while there are submissions, sleeps when there are none, and ends when it is told to, from either.
func TestLively(t *testing.T) {
	l := lively{woke: make(chan struct{}, 1)}
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { l.run(stop) })
	for range 2 {
		for !l.on.Load() {
			l.submission()
			runtime.Gosched()
		}
		for l.on.Load() { // nobody submits
			runtime.Gosched()
		}
	}
	for !l.on.Load() {
		l.submission()
		runtime.Gosched()
	}
	close(stop)
	done.Wait()
}
