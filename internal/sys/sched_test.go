package sys

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// onThread runs fn on a thread of its own, which ends with it.
func onThread(fn func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // never unlocked: the thread is changed
		fn()
	}()
	<-ended
}

func TestNiceIsPerThread(t *testing.T) {
	onThread(func() {
		before, err := threadNice()
		if err != nil {
			t.Error(err)
			return
		}
		if err := SetThreadNice(min(before+5, 19)); err != nil {
			t.Error(err)
		}
		if got, err := threadNice(); err != nil || got != min(before+5, 19) {
			t.Errorf("niceness %d, %v; want %d", got, err, before+5)
		}
		onThread(func() {
			if err := SetThreadNice(19); err != nil {
				t.Error(err)
			}
		})
		if got, err := threadNice(); err != nil || got != min(before+5, 19) {
			t.Errorf("another thread changed this one's niceness to %d, %v", got, err)
		}
	})
}

// threadNice returns the niceness of the calling thread.
func threadNice() (int, error) {
	// The system call answers 20 minus the niceness, to stay positive.
	n, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
	if err != nil {
		return 0, fmt.Errorf("get niceness of thread: %w", err)
	}
	return 20 - n, nil
}
