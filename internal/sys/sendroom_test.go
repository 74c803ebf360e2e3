package sys

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUnsentBytesCountsWhatThePeerDidNotTake(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	unsent := func() (n int) {
		if e := raw.Control(func(fd uintptr) { n, err = UnsentBytes(fd) }); e != nil || err != nil {
			t.Fatal(e, err)
		}
		return n
	}
	if n := unsent(); n != 0 {
		t.Errorf("%d bytes before anything was written", n)
	}
	// More than both socket buffers hold: the rest has to wait at this end.
	sent, b := 0, make([]byte, 1<<20)
	if e := raw.Write(func(fd uintptr) bool {
		for {
			n, err := unix.SendmsgN(int(fd), b, nil, nil, unix.MSG_DONTWAIT)
			if err != nil {
				return true // full
			}
			sent += n
		}
	}); e != nil {
		t.Fatal(e)
	}
	if n := unsent(); n == 0 || n > sent {
		t.Errorf("%d unsent of %d written that nobody reads", n, sent)
	}
}
