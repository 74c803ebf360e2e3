package pulse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// Listener is a listener whose accept loop can be pinged. Accept answers pings by itself, and its caller sees none of
// them. Accept is for one goroutine, Ping for another one.
type Listener struct {
	net.Listener
	clock    interface{ SetDeadline(time.Time) error }
	answered chan struct{}
}

// Listen wraps l, a listener with deadlines, as those of TCP and unix sockets are.
func Listen[L interface {
	net.Listener
	SetDeadline(time.Time) error
}](l L) *Listener {
	return &Listener{l, l, make(chan struct{}, 1)}
}

// SyscallConn returns that of the wrapped listener, for its socket options.
func (l *Listener) SyscallConn() (syscall.RawConn, error) {
	c, ok := l.Listener.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%T has no descriptor: %w", l.Listener, errors.ErrUnsupported)
	}
	return c.SyscallConn()
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// Accept waits for a connection.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return conn, err
		}
		// First, before the answer: the next ping must not lose its deadline.
		_ = l.clock.SetDeadline(time.Time{})
		select {
		case l.answered <- struct{}{}:
		default:
		}
	}
}

// Ping returns nil once the accept loop has come by, or ctx's error if it does not in time. Connections that wait are
// not lost.
func (l *Listener) Ping(ctx context.Context) error {
	select {
	case <-l.answered: // an answer to a ping that nobody waited for any more
	default:
	}
	if err := l.clock.SetDeadline(past); err != nil {
		return err
	}
	select {
	case <-l.answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
