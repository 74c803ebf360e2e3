package daemon

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// maxCrowd is far more than a Prometheus and a few probes need.
const maxCrowd = 64

// crowd bounds the connections of a server at which everybody on the machine may knock: without it, one process that opens many leaves the
// daemon no descriptors for engines and peers. Who comes is never turned away: of those that ask nothing the one that has been there longest
// makes room, and if all ask something, it is the one of all. The zero value is empty.
type crowd struct {
	mu   sync.Mutex
	list []*guest
}

type guest struct {
	conn   net.Conn
	asking bool
}

// note is for http.Server.ConnState.
func (c *crowd) note(conn net.Conn, state http.ConnState) {
	if out := c.enter(conn, state); out != nil {
		_ = out.Close()
	}
}

// enter returns who makes room.
func (c *crowd) enter(conn net.Conn, state http.ConnState) (out net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.list, func(g *guest) bool { return g.conn == conn })
	switch {
	case state == http.StateNew:
		c.list = append(c.list, &guest{conn: conn})
	case i < 0: // it made room
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
