package peer

import (
	"crypto/tls"
	"net"
	"sync"
)

// corked is a TLS connection that hands all records of one Write to the kernel together. crypto/tls makes one system
// call for each record of 16 KiB, and the kernel one segment of each call, which costs a bulk stream a quarter of its
// rate. As with *tls.Conn, any goroutine may call it. Close says goodbye, and so may wait for a peer that does not
// read. Who cannot wait must close the connection below.
type corked struct {
	*tls.Conn
	below *cork
}

// newCorked encrypts conn, as the client or as the server.
func newCorked(conn net.Conn, client bool, cfg *tls.Config) *corked {
	below := &cork{Conn: conn}
	if client {
		return &corked{tls.Client(below, cfg), below}
	}
	return &corked{tls.Server(below, cfg), below}
}

// Write returns when the kernel has all of p, or with an error, after which nothing more can be written.
func (c *corked) Write(p []byte) (int, error) {
	c.below.hold()
	n, err := c.Conn.Write(p)
	if e := c.below.release(); e != nil {
		return 0, e
	}
	return n, err
}

// cork is the connection below TLS. It keeps records, up to keptMost, while somebody holds it. The lock is held even
// while the kernel takes them, so that none overtakes another. Close needs no lock, and ends a write that waits.
type cork struct {
	net.Conn
	mu      sync.Mutex
	holders int
	kept    []byte
	err     error // why a write failed
}

// keptMost is the size from which records are written although more follow. All that a data link writes at once fits.
const keptMost = 80 << 10

func (c *cork) hold() {
	c.mu.Lock()
	c.holders++
	c.mu.Unlock()
}

// release writes what is kept, including records of other holders.
func (c *cork) release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holders--
	return c.write()
}

// Write is for crypto/tls, which passes whole records.
func (c *cork) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, p...)
	if c.holders > 0 && len(c.kept) < keptMost && c.err == nil {
		return len(p), nil
	}
	if err := c.write(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// write gives the kernel what is kept. It is called with the lock held.
func (c *cork) write() error {
	if len(c.kept) > 0 && c.err == nil {
		_, c.err = c.Conn.Write(c.kept)
	}
	c.kept = c.kept[:0]
	return c.err
}
