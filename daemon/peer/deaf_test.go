package peer

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvpipe/kvpipe/daemon/transport"
)

// deafen makes a socket lose whatever comes, acknowledgements too, as when its way is gone.
func deafen(fd int) error {
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing})
}

// TestALinkWhoseWayGoesDead: its ends notice, the one with bytes under way and the one that only listens, and it opens again, while the channel
// and the other link live on. Neither reset nor end of stream tells of it.
func TestALinkWhoseWayGoesDead(t *testing.T) {
	eachMode(t, func(t *testing.T, cl *cluster, change func(*Config)) {
		wary := func(c *Config) {
			if change != nil {
				change(c)
			}
			c.unheard = time.Second
		}
		a, b := cl.node("a", wary), cl.node("b", wary)
		a.knows(b)
		epoch := met(a, b)
		var dead []*transport.Link
		for _, n := range []*node{a, b} {
			n.until(func() bool {
				if len(n.links) == 2 {
					dead = append(dead, n.links[slices.IndexFunc(n.links, func(l *transport.Link) bool { return l.Index == 0 })])
				}
				return len(n.links) == 2
			})
		}
		for _, l := range dead {
			onSocket(t, l.Conn, deafen)
		}
		_, _ = dead[1].Conn.Write([]byte("x")) // from who was dialed, and cannot open it again
		var both sync.WaitGroup
		for i, n := range []*node{a, b} {
			both.Go(func() {
				_ = dead[i].Conn.SetReadDeadline(time.Now().Add(patience))
				if _, err := dead[i].Conn.Read(make([]byte, 1)); !errors.Is(err, unix.ETIMEDOUT) {
					t.Errorf("%s reads from a dead link: %v", n.cfg.Node, err)
				}
				relink(n, dead[i])
			})
		}
		both.Wait()
		for _, n := range []*node{a, b} {
			n.until(func() bool { return len(n.links) == 3 })
			if again := n.links[2].Index; again != 0 || epochOf(a, "b") != epoch {
				t.Errorf("%s: link %d came again, in channel %d; want 0 in %d", n.cfg.Node, again, epochOf(a, "b"), epoch)
			}
		}
	})
}
