package peer

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestEachNodePacesItsOwnLinks: a node's links have the congestion control that it was told, with TLS and without, whoever dialed; the
// other node's have the system's.
func TestEachNodePacesItsOwnLinks(t *testing.T) {
	system, err := sys.Congestion("")
	if err != nil {
		t.Fatal(err)
	}
	other := "reno"
	if system == other {
		other = "cubic"
	}
	eachMode(t, func(t *testing.T, c *cluster, change func(*Config)) {
		told := func(cfg *Config) {
			if change != nil {
				change(cfg)
			}
			cfg.Congestion = other
		}
		a, b := c.node("a", told), c.node("b", change)
		a.knows(b)
		a.Dial("b")
		wait[transfer.PeerUp](a, nil)
		wait[transfer.PeerUp](b, nil)
		for n, want := range map[*node]string{a: other, b: system} {
			n.until(func() bool { return len(n.links) == 2 })
			for _, l := range n.links {
				if got := congestionOf(t, l.Conn); got != want {
					t.Errorf("a link of %s has %q, want %q", n.cfg.Node, got, want)
				}
			}
		}
	})
}

func congestionOf(t *testing.T, conn net.Conn) (name string) {
	t.Helper()
	onSocket(t, conn, func(fd int) (err error) {
		name, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		return err
	})
	return name
}

// onSocket does something to the socket of a link.
func onSocket(t *testing.T, conn net.Conn, do func(fd int) error) {
	t.Helper()
	if s, ok := conn.(*corked); ok {
		conn = s.below.Conn
	}
	if r, ok := conn.(*rewound); ok { // who was dialed has read from it before TLS
		conn = r.Conn
	}
	if err := sys.Control(conn.(*net.TCPConn), do); err != nil {
		t.Fatal(err)
	}
}
