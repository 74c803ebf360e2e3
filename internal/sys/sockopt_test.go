package sys

import (
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// With a low-water mark the poller reports a socket only when that much is
// there, and the end of the stream all the same.
func TestRcvLowat(t *testing.T) {
	a, b := tcpPair(t)
	rb := raw(t, b)
	noErr(t, rb.Control(func(fd uintptr) { noErr(t, SetRcvLowat(fd, 1000)) }))
	_, err := a.Write(make([]byte, 600))
	noErr(t, err)
	buf := make([]byte, 2000)
	iov := []Iovec{MakeIovec(buf)}
	got := make(chan int)
	parked := make(chan struct{}, 1)
	go func() {
		n, calls := 0, 0
		_ = rb.Read(func(fd uintptr) bool {
			// The first call comes before any wait.
			if calls++; calls == 1 {
				parked <- struct{}{}
				return false
			}
			n, _ = Recvmsg(fd, iov)
			return true
		})
		got <- n
	}()
	<-parked
	_, err = a.Write(make([]byte, 400))
	noErr(t, err)
	if n := <-got; n != 1000 {
		t.Fatalf("woken at %d bytes, want 1000", n)
	}
	_, err = a.Write(make([]byte, 5))
	noErr(t, err)
	noErr(t, a.CloseWrite())
	var n int
	noErr(t, rb.Read(func(fd uintptr) bool {
		var errno syscall.Errno
		n, errno = Recvmsg(fd, iov)
		return errno != syscall.EAGAIN
	}))
	if n != 5 {
		t.Fatalf("%d bytes at the end, want 5", n)
	}
}

// The kernel has the limit in milliseconds.
func TestUserTimeout(t *testing.T) {
	a, _ := tcpPair(t)
	noErr(t, Control(a, func(fd int) error {
		noErr(t, SetUserTimeout(fd, 5*time.Second))
		ms, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		if ms != 5000 {
			t.Errorf("%d ms, want 5000", ms)
		}
		return err
	}))
	if err := SetUserTimeout(-1, time.Second); err == nil {
		t.Error("no error for what is no socket")
	}
}
