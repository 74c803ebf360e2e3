package daemon

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// maxCrowd is far more than a Prometheus and a few probes need.
const maxCrowd = 64

// crowd bounds the connections of a server that everybody on the machine can reach. Without it, one process that opens
// many would leave the daemon no descriptors for engines and peers. A newcomer is never turned away. Of the connections
// that ask nothing, the oldest makes room; if all ask something, the oldest of all. The zero value is empty.
type crowd struct {
	mu   sync.Mutex
	list []*guest
}

type guest struct {
	conn   net.Conn
	asking bool
}

// note is for http.Server.ConnState. It closes the connection that has to make room.
func (c *crowd) note(conn net.Conn, state http.ConnState) {
	if out := c.enter(conn, state); out != nil {
		_ = out.Close()
	}
}

// enter returns the connection that has to make room, or nil.
func (c *crowd) enter(conn net.Conn, state http.ConnState) (out net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.list, func(g *guest) bool { return g.conn == conn })
	switch {
	case state == http.StateNew:
		c.list = append(c.list, &guest{conn: conn})
	case i < 0: // it had to make room
		return nil
	case state == http.StateClosed:
		c.list = slices.Delete(c.list, i, i+1)
	default:
		c.list[i].asking = state == http.StateActive
	}
	if len(c.list) <= maxCrowd {
		return nil
	}
	i = max(0, slices.IndexFunc(c.list, func(g *guest) bool { return !g.asking && g.conn != conn }))
	out = c.list[i].conn
	c.list = slices.Delete(c.list, i, i+1)
	return out
}
