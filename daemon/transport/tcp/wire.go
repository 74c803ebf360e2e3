package tcp

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// wire is the socket of a plain link, taken out of the runtime's poller: that one wakes a thread for whatever arrives at any
// of its sockets, whether a goroutine waits there or not, and a stream at full speed would wake it for every segment. The
// goroutines of a wire wait in the kernel instead, each with its thread, for what they need and nothing else. Where too many would hold
// threads, they wait in a lot.
type wire struct {
	fd   int
	over atomic.Bool
}

// newWire takes the socket over from c, which is closed.
func newWire(c *net.TCPConn) (*wire, error) {
	w := &wire{}
	err := sys.Control(c, func(fd int) (err error) {
		w.fd, err = sys.Dup(fd)
		return err
	})
	_ = c.Close() // leaves the connection alone: there is another descriptor, or nobody wants it
	if err != nil {
		return nil, err
	}
	return w, nil
}

// loopbackUnacked is how much a plain link over loopback may have sent that is not acknowledged, with the kernel's overhead on top. By
// itself the kernel lets that grow to MiBs, as if there were a path to fill. Under bbr two streams on two CPUs then have 1.0 to 1.4 times
// the rate with blocks of 64 KiB, 1.1 to 1.2 times with 8 KiB; one stream has 1.0 to 1.2 times; under cubic it makes little difference.
// Twice or three quarters of it gave less. Older kernels allow 208 KiB unless told otherwise (net.core.wmem_max), which gives less too,
// and no worse than nothing.
const loopbackUnacked = 512 << 10

// forever is for wait.
const forever = -1

// wait returns true when the socket can be written or read, has failed or is hung up, and sometimes without a reason; false
// after d.
func (w *wire) wait(write bool, d time.Duration) bool { return sys.WaitSocket(w.fd, write, d) }

// hangUp ends the connection in both directions, which wakes whoever waits for it. Any goroutine may call it before close.
func (w *wire) hangUp() {
	w.over.Store(true)
	_ = sys.Shutdown(w.fd) // it fails when the peer was first
}

// close gives the descriptor back, once nobody uses the wire any more.
func (w *wire) close() { _ = sys.Close(w.fd) }
