package sys

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSendRoomIsWhatTheKernelStillTakes: until it takes nothing more of a socket.
func TestSendRoomIsWhatTheKernelStillTakes(t *testing.T) {
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
	room := func() (n int) {
		if e := raw.Control(func(fd uintptr) { n, err = SendRoom(fd) }); e != nil || err != nil {
			t.Fatal(e, err)
		}
		return n
	}
	all := room()
	if all <= 0 {
		t.Errorf("room for %d bytes before anything was written", all)
	}
	// More than both socket buffers hold: the rest has to wait at this end.
	b := make([]byte, 1<<20)
	if e := raw.Write(func(fd uintptr) bool {
		for {
			if _, err := unix.SendmsgN(int(fd), b, nil, nil, unix.MSG_DONTWAIT); err != nil {
				return true // full
			}
		}
	}); e != nil {
		t.Fatal(e)
	}
	if n := room(); n >= all/2 {
		t.Errorf("room for %d bytes of %d when it takes no more", n, all)
	}
}
