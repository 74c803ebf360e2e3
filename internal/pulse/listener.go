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

// Listener is a listener whose accept loop can be pinged: Accept answers pings by itself, and its caller sees none of them. Accept is
// for one goroutine, Ping for another one.
type Listener struct {
	net.Listener
	clock    interface{ SetDeadline(time.Time) error }
	answered chan struct{}
}

// Listen wraps l, a listener with deadlines: those of TCP and of unix sockets have them.
func Listen[L interface {
	net.Listener
	SetDeadline(time.Time) error
}](l L) *Listener {
	return &Listener{l, l, make(chan struct{}, 1)}
}

// SyscallConn is the one of what it wraps, whose options it has.
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
		// Before the answer: the next ping must not lose its deadline.
		_ = l.clock.SetDeadline(time.Time{})
		select {
		case l.answered <- struct{}{}:
		default:
		}
	}
}

// Ping returns nil once the accept loop has come by, and ctx's error when it has not until then. Connections that wait are not lost.
func (l *Listener) Ping(ctx context.Context) error {
	select {
	case <-l.answered: // to a ping that nobody waited for any more
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
