package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvpipe/kvpipe/internal/pulse"
)

// TestAllAddressesOfIPv4 are none of IPv6, whether the port is free at the start or later.
func TestAllAddressesOfIPv4(t *testing.T) {
	for _, host := range []string{"0.0.0.0", "::ffff:0.0.0.0"} {
		l, err := new(Daemon).listenTCP("listen", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		if got, want := l.Addr().String(), "0.0.0.0:"+port; got != want {
			t.Errorf("%s: listens at %s, want %s", host, got, want)
		}
		if c, err := net.Dial("tcp6", net.JoinHostPort("::1", port)); err == nil {
			_ = c.Close()
			t.Errorf("%s: IPv6 connects", host)
		}
		_ = l.Close()
		p := listenLate(&net.TCPAddr{IP: net.ParseIP(host)}, true, func(why error) {
			if why != nil {
				t.Error(why)
			}
		})
		p.open()
		if a := p.Addr().String(); !strings.HasPrefix(a, "0.0.0.0:") {
			t.Errorf("%s, later: listens at %s", host, a)
		}
		_ = p.Close()
	}
}

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

// wantsTaken returns a daemon that waits for a port which this process has.
func wantsTaken(t *testing.T) (*Daemon, *pulse.Listener) {
	t.Helper()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	d := &Daemon{log: slog.New(slog.DiscardHandler)}
	l, err := d.port("listen", taken.Addr().String(), "give another one")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return d, l
}

// TestWhoHasAPortIsSaidAsLongAsItHasIt: status has the reason of the last try, and what to do, as the log has that of the first.
func TestWhoHasAPortIsSaidAsLongAsItHasIt(t *testing.T) {
	d, l := wantsTaken(t)
	first := d.closed.problems()
	if len(first) != 1 || !strings.Contains(first[0].text, fmt.Sprintf("(PID %d): give another one", os.Getpid())) {
		t.Errorf("%q", first)
	}
	l.Listener.(*late).open()
	if again := d.closed.problems(); !slices.Equal(again, first) {
		t.Errorf("%q, want %q", again, first)
	}
}

// TestWhoHasAPortIsLookedForNowAndThen: that takes a second on a node of many processes, and a port is tried every few seconds.
func TestWhoHasAPortIsLookedForNowAndThen(t *testing.T) {
	const comm = "/proc/self/comm"
	before, err := os.ReadFile(comm)
	if err != nil {
		t.Skip(err)
	}
	rename := func(to string) {
		if err := os.WriteFile(comm, []byte(to), 0); err != nil {
			t.Skip(err)
		}
	}
	rename("first")
	defer rename(strings.TrimSpace(string(before)))
	synctest.Test(t, func(t *testing.T) {
		d, l := wantsTaken(t)
		rename("second")
		for range 2 {
			l.Listener.(*late).open()
			if now := d.closed.problems(); len(now) != 1 || !strings.Contains(now[0].text, "in use by first ") {
				t.Errorf("looked for at once again: %q", now)
			}
		}
		time.Sleep(lookAgain)
		l.Listener.(*late).open()
		if now := d.closed.problems(); len(now) != 1 || !strings.Contains(now[0].text, "in use by second ") {
			t.Errorf("not looked for again: %q", now)
		}
	})
}
