package sessiontest

import (
	"fmt"
	"time"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Descriptors calls do with what a forked child of the client's process has of the session: its socket, ring_c, ring_d,
// and the eventfds of submissions and completions. The client keeps them; they stay open until do returns.
func (c *Client) Descriptors(do func(fds [5]int) error) error {
	return sys.Control(c.Conn, func(conn int) error { return do([5]int{conn, c.RingC, c.ringDFD, c.sq, c.CQEvent}) })
}

// Inherit makes a client of descriptors that another process has as well. From then on both are one session, and
// neither knows what the other does. It takes the descriptors over.
func Inherit(fds [5]int, w ring.Welcome, timeout time.Duration) (*Client, error) {
	conn, err := sys.UnixConn(fds[0])
	if err != nil {
		sys.CloseAll(fds[1:])
		return nil, fmt.Errorf("inherit a session: %w", err)
	}
	c := newClient(conn, timeout)
	c.Welcome = w
	if err := c.adopt(fds[1:]); err != nil {
		c.Kill()
		return nil, fmt.Errorf("inherit a session: %w", err)
	}
	return c, nil
}
