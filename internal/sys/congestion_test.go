package sys_test

import (
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestCongestion: what is asked for is what a socket then has, and what the kernel lacks is refused with what there is.
func TestCongestion(t *testing.T) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	own := strings.TrimSpace(string(b))
	if got, err := sys.Congestion(""); err != nil || got != own {
		t.Errorf("the system's is %q, %v, want %q", got, err, own)
	}
	// reno is part of every kernel, and allowed unless somebody took it off the list.
	if got, err := sys.Congestion("reno"); err != nil || got != "reno" {
		t.Errorf("reno: %q, %v", got, err)
	}
	if _, err := sys.Congestion("nosuch"); err == nil || !strings.Contains(err.Error(), `"nosuch": this kernel has `) || !strings.Contains(err.Error(), "reno") {
		t.Errorf("one that is not there: %v", err)
	}
}

// TestSetCongestion: also of a connection that is open.
func TestSetCongestion(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	var got string
	err = sys.Control(c.(*net.TCPConn), func(fd int) (err error) {
		if err = sys.SetCongestion(fd, "reno"); err == nil {
			got, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		}
		return err
	})
	if err != nil || got != "reno" {
		t.Errorf("%q, %v", got, err)
	}
}
