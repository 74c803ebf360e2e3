package driver

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
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

// TestLivelyAtTheLastMoment: what is done during the last nap counts, and so does what comes after it.
func TestLivelyAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lively
		l.init()
		begin, end := make(chan struct{}), make(chan struct{})
		l.nap = func() { begin <- struct{}{}; <-end }
		stop := make(chan struct{})
		go l.run(stop)
		l.stir()
		for more := 2; more >= 0; more-- {
			for nap := range livelyIdle {
				<-begin
				if nap == livelyIdle-1 && more > 0 {
					l.stir()
				}
				end <- struct{}{}
			}
		}
		close(stop)
	})
}
