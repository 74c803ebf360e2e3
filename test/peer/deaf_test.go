package peer

import (
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvpipe/kvpipe/internal/sys"
	"github.com/kvpipe/kvpipe/test/cluster"
)

// way passes connections on, until some of them lose whatever comes.
type way struct {
	addr string
	t    *testing.T
	mu   sync.Mutex
	ends []*net.TCPConn // two for each connection, in the order in which they came
}

func newWay(t *testing.T, to string) *way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{addr: l.Addr().String(), t: t}
	var all sync.WaitGroup
	all.Go(func() {
		for in, err := l.Accept(); err == nil; in, err = l.Accept() {
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			near, far := in.(*net.TCPConn), out.(*net.TCPConn)
			w.mu.Lock()
			w.ends = append(w.ends, near, far)
			w.mu.Unlock()
			all.Go(func() { _, _ = io.Copy(near, far); _ = near.CloseWrite() })
			all.Go(func() { _, _ = io.Copy(far, near); _ = far.CloseWrite() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		w.mu.Lock()
		for _, c := range w.ends {
			_ = c.Close()
		}
		w.mu.Unlock()
		all.Wait()
	})
	return w
}

// deafen makes a data link lose whatever comes, acknowledgements too: the one that was opened last.
func (w *way) deafen() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	for _, c := range w.ends[len(w.ends)-2:] {
		err := sys.Control(c, func(fd int) error {
			return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing})
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// A way that is gone for one data link alone, without reset or end of stream, costs a hand-over time and nothing else: what was under way there
// goes another way, and the link opens again, whoever dialed.
func TestADataLinkWhoseWayGoesDead(t *testing.T) {
	c := cluster.New(t)
	b := c.Node("b").Start()
	w := newWay(t, b.Addr)
	a := c.Node("a")
	a.KnowsAt("b", w.addr)
	a.Start()
	const block = 256 << 10 // more is under way than the kernel takes from a link's sender
	here, there := joinWith(a, "here", block), joinWith(b, "there", block)
	handOver(there, here, there.n.Name, blocks)
	epoch := a.Peer("b").Epoch
	for range 2 {
		cluster.Eventually(t, "all links are up", func() bool { return a.Peer("b").Links == 2 && b.Peer("a").Links == 2 })
		w.deafen()
		handOver(there, here, there.n.Name, blocks)
		there, here = here, there
	}
	if p := a.Peer("b"); p.Epoch != epoch {
		t.Errorf("the channel was opened anew: epoch %d, before %d", p.Epoch, epoch)
	}
}
