package pulse

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func listener(t *testing.T) *Listener {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(inner.(*net.TCPListener))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestListener: a loop that accepts answers every ping, and its connections come through in between.
func TestListener(t *testing.T) {
	l := listener(t)
	conns := make(chan net.Conn)
	go func() {
		defer close(conns)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns <- c
		}
	}()
	for range 50 {
		if err := l.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		out, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		in := <-conns
		_, _ = in.Close(), out.Close()
	}
	_ = l.Close()
	<-conns
	if err := l.Ping(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a ping of a closed listener: %v", err)
	}
}

// TestListenerThatIsStuck: a loop that does not accept does not answer; when it goes on, connections that waited come first or after
// the answer, and none is lost.
func TestListenerThatIsStuck(t *testing.T) {
	l := listener(t)
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := l.Ping(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a loop that does not turn answers %v", err)
	}
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
}

// TestBeat: who rests is alive however long, who works has to come further.
func TestBeat(t *testing.T) {
	var b Beat
	look := func(when string, want bool) {
		t.Helper()
		if b.Alive() != want {
			t.Errorf("%s: alive is %v", when, !want)
		}
	}
	look("at first", true)
	look("has done nothing", false)
	b.Tick()
	look("did something", true)
	look("and nothing more", false)
	b.Rest()
	look("rests", true)
	look("still", true)
	b.Rise()
	look("is back", true)
	look("and stuck", false)
	b.Rest()
	b.Rise()
	look("rested and is back", true)
}
