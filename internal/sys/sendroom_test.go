package sys

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestSendRoomIsWhatTheKernelStillTakes: until it takes nothing more of a socket.
func TestSendRoomIsWhatTheKernelStillTakes(t *testing.T) {
	c, _ := tcpPair(t)
	r := raw(t, c)
	room := func() (n int) {
		var err error
		noErr(t, r.Control(func(fd uintptr) { n, err = SendRoom(fd) }))
		noErr(t, err)
		return n
	}
	all := room()
	if all <= 0 {
		t.Errorf("room for %d bytes before anything was written", all)
	}
	// More than both socket buffers hold: the rest has to wait at this end.
	b := make([]byte, 1<<20)
	noErr(t, r.Write(func(fd uintptr) bool {
		for {
			if _, err := unix.SendmsgN(int(fd), b, nil, nil, unix.MSG_DONTWAIT); err != nil {
				return true // full
			}
		}
	}))
	if n := room(); n >= all/2 {
		t.Errorf("room for %d bytes of %d when it takes no more", n, all)
	}
}
