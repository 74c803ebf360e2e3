package tcp

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// wire is the socket of a plain link, taken out of the runtime's poller. That poller wakes a thread for whatever
// arrives at any of its sockets, whether or not a goroutine waits there, and would do so for every segment of a stream
// at full speed. The goroutines of a wire wait in the kernel instead, each with its thread, and only for what they
// need. When too many would hold threads, they wait in a lot.
type wire struct {
	fd   int
	over atomic.Bool
}

// newWire takes over the socket of c, and closes c.
func newWire(c *net.TCPConn) (*wire, error) {
	w := &wire{}
	err := sys.Control(c, func(fd int) (err error) {
		w.fd, err = sys.Dup(fd)
		return err
	})
	_ = c.Close() // does not end the connection: w.fd keeps it, or it is not wanted
	if err != nil {
		return nil, err
	}
	return w, nil
}

// loopbackUnacked is how many bytes a plain link over loopback may have sent without an acknowledgement; the kernel's
// overhead comes on top. By itself the kernel lets that grow to MiBs, as if there were a path to fill. With this limit
// and bbr, two streams on two CPUs run 1.0 to 1.4 times as fast with blocks of 64 KiB and 1.1 to 1.2 times with 8 KiB,
// and one stream 1.0 to 1.2 times; with cubic it makes little difference. Twice or three quarters of the limit gained
// less. Older kernels allow only 208 KiB unless told otherwise (net.core.wmem_max), which also gains less, but is no
// worse than no limit.
const loopbackUnacked = 512 << 10

// forever makes wait wait without a limit.
const forever = -1

// wait returns true when the socket can be written or read, has failed or is hung up, and sometimes for no reason. It
// returns false after d.
func (w *wire) wait(write bool, d time.Duration) bool { return sys.WaitSocket(w.fd, write, d) }

// hangUp ends the connection in both directions, which wakes whoever waits for it. Any goroutine may call it, before
// close.
func (w *wire) hangUp() {
	w.over.Store(true)
	_ = sys.Shutdown(w.fd) // fails if the peer was first
}

// close closes the descriptor. Nobody may use the wire any more.
func (w *wire) close() { _ = sys.Close(w.fd) }
