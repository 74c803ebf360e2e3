package sys

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A signal to the thread that asks, such as those by which the Go runtime preempts it, is no answer.
func TestPollBesideSignals(t *testing.T) {
	_, quiet := pair(t)
	fd := -1
	noErr(t, Control(quiet, func(n int) (err error) { fd, err = Dup(n); return err }))
	defer Close(fd)

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, over := unix.Gettid(), make(chan struct{})
	go func() {
		defer close(over)
		for range 20_000 {
			_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG)
		}
	}()
	failed := 0
	for asks := true; asks; {
		select {
		case <-over:
			asks = false
		default:
		}
		if ready, err := pollNow(fd, unix.POLLIN); ready != 0 || err != nil {
			failed++
		}
	}
	if failed > 0 {
		t.Errorf("%d polls of a socket on which nothing happens were ready, or failed", failed)
	}
}

// TestReadable: something to read, or the end, is there; on a connection that is closed here, nothing is.
func TestReadable(t *testing.T) {
	a, b := pair(t)
	if Readable(b) {
		t.Error("readable, but nothing was sent")
	}
	noErr(t, Send(a, []byte("x")))
	if !Readable(b) {
		t.Error("not readable, but something was sent")
	}
	noErr(t, b.Close())
	if !Readable(a) {
		t.Error("not readable, but the other end is closed")
	}
	if Readable(b) {
		t.Error("readable, but closed here")
	}
}
