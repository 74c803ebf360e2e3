package peer

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy stands between two nodes. While it is dark it takes bytes and passes none on, as a cut cable does.
type proxy struct {
	addr string

	mu    sync.Mutex
	lit   *sync.Cond
	dark  bool
	alone bool // the first connection is passed on, and no other
	close bool // which are hung up
	away  int  // that were not passed on
	over  bool
	conns []net.Conn
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String()}
	p.lit = sync.NewCond(&p.mu)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			if p.turnedAway(in) {
				continue
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			all.Go(func() { p.pass(in, out) })
			all.Go(func() { p.pass(out, in) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		p.mu.Lock()
		p.over = true
		p.mu.Unlock()
		p.lit.Broadcast()
		all.Wait()
	})
	return p
}

func (p *proxy) pass(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		for p.dark && !p.over {
			p.lit.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			_, _ = to.Write(buf[:n])
		}
		if err != nil {
			if err == io.EOF {
				_ = to.(*net.TCPConn).CloseWrite()
			} else {
				_ = to.Close()
			}
			return
		}
	}
}

// first passes on the first connection alone; those after it are hung up, or hear nothing.
func (p *proxy) first(hangUp bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alone, p.close = true, hangUp
}

func (p *proxy) turnedAway(in net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alone || len(p.conns) == 0 {
		return false
	}
	p.away++
	if p.close {
		_ = in.Close()
	} else {
		p.conns = append(p.conns, in)
	}
	return true
}

func (p *proxy) setDark(dark bool) {
	p.mu.Lock()
	p.dark = dark
	p.mu.Unlock()
	p.lit.Broadcast()
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}
