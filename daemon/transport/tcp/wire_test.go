package tcp

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestLinksOnOneHostKeepLittle: what is on its way between two daemons of one host has to fit the caches.
func TestLinksOnOneHostKeepLittle(t *testing.T) {
	tr := New(Config{})
	near, _ := connect(t)
	l := &link{Link: linkOf(near, epoch, 1), ch: tr.channel(channelKey{"a", epoch})}
	if _, _, err := l.ends(); err != nil {
		t.Fatal(err)
	}
	defer l.release()
	got, err := unix.GetsockoptInt(l.wire.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		t.Fatal(err)
	}
	if most := 2 * nearby; got > most { // the kernel doubles it
		t.Errorf("the send buffer is %d bytes, want %d at most", got, most)
	}
}
