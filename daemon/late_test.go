package daemon

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/internal/pulse"
)

// TestLate: a port that another one has is opened when it is free. Until then its accept loop answers pings, and Close ends it.
func TestLate(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	at := name(net.JoinHostPort("localhost", port))
	opened := make(chan struct{})
	wait := func() (*pulse.Listener, chan error) {
		p := listenLate(at, false, func(why error) {
			if why == nil {
				close(opened)
			}
		})
		p.every = time.Millisecond
		l, ended := pulse.Listen(p), make(chan error, 1)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				_ = c.Close()
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for range 3 {
			if err := l.Ping(ctx); err != nil {
				t.Fatalf("a loop that waits for its port: %v", err)
			}
		}
		return l, ended
	}
	closed := func(l *pulse.Listener, ended chan error) {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if err := l.Ping(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a ping when it is closed: %v", err)
		}
	}
	closed(wait())
	l, ended := wait()
	_ = taken.Close()
	<-opened
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if err := l.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	closed(l, ended)
}
