package sys

import (
	"syscall"
	"testing"
	"time"
)

func fdOf(t *testing.T, c syscall.Conn) int {
	t.Helper()
	fd := -1
	noErr(t, Control(c, func(n int) (err error) { fd, err = Dup(n); return err }))
	t.Cleanup(func() { noErr(t, Close(fd)) })
	return fd
}

// A wait ends by its time when nothing happens, and at once when there is something to read or room to write.
func TestWaitSocket(t *testing.T) {
	a, b := tcpPair(t)
	fd := fdOf(t, b)
	for n := 0; WaitSocket(fd, false, time.Microsecond); n++ { // also after a signal, but there are not that many
		if Readable(b) || n == 1000 {
			t.Fatal("readable, but nothing was sent")
		}
	}
	if !WaitSocket(fd, true, -1) {
		t.Error("not writable, but nothing was sent")
	}
	_, err := a.Write([]byte("x"))
	noErr(t, err)
	if !WaitSocket(fd, false, -1) {
		t.Error("not readable")
	}
}

// A reader that waits without end is woken when the connection is shut down on its own side, through another descriptor.
func TestShutdownWakes(t *testing.T) {
	_, b := tcpPair(t)
	fd := fdOf(t, b)
	woken := make(chan bool)
	go func() { woken <- WaitSocket(fd, false, -1) }()
	noErr(t, Shutdown(fdOf(t, b)))
	if !<-woken {
		t.Error("the wait says that its time is over, but it has none")
	}
	if n, errno := Recvmsg(uintptr(fd), []Iovec{MakeIovec(make([]byte, 1))}); n != 0 || errno != 0 {
		t.Errorf("read after the end: %d, %v", n, errno)
	}
	if err := Shutdown(-1); err == nil {
		t.Error("shut down what is no socket")
	}
}
