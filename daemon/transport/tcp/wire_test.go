package tcp

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestLoopbackLinksAreBounded: the kernel does not choose the send buffer of a plain link over loopback.
func TestLoopbackLinksAreBounded(t *testing.T) {
	tr := New(Config{})
	near, far := connect(t)
	defer far.Close()
	tr.mu.Lock()
	l := &link{Link: linkOf(near, epoch, 1), ch: tr.channel(channelKey{"a", epoch})}
	tr.mu.Unlock()
	if _, _, err := l.ends(); err != nil {
		t.Fatal(err)
	}
	defer l.release()
	got, err := unix.GetsockoptInt(l.wire.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		t.Fatal(err)
	}
	if most := 2 * loopbackUnacked; got > most { // the kernel doubles it
		t.Errorf("the send buffer is %d bytes, want %d at most", got, most)
	}
}
