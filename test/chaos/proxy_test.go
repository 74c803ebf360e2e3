package chaos

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// fault is what happens to the bytes between two daemons.
type fault int

const (
	healthy   fault = iota
	stalled         // nothing passes and nobody is told: half-open connections
	reset           // every connection ends with RST, new ones too
	closed          // every connection ends with FIN, new ones too
	flipped         // a bit of one large piece of each connection is another
	shortened       // some bytes of one large piece of each connection are missing
	faults
)

func (f fault) String() string {
	return [...]string{"healthy", "stalled", "reset", "closed", "flipped", "shortened"}[f]
}

// proxy passes connections on to a daemon, well or badly.
type proxy struct {
	addr   string
	target string
	l      net.Listener
	wg     sync.WaitGroup

	mu      sync.Mutex
	now     fault
	changed chan struct{}
	rng     *rand.Rand
	pairs   map[*pair]bool
	over    bool
}

// pair is one connection on both its sides.
type pair struct {
	near, far net.Conn
	hurt      bool // by the fault at hand
}

func newProxy(t *testing.T, target string, seed uint64) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{
		addr: l.Addr().String(), target: target, l: l, changed: make(chan struct{}), pairs: map[*pair]bool{},
		rng: rand.New(rand.NewPCG(seed, 1)),
	}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.over = true
		p.mu.Unlock()
		_ = l.Close()
		p.inflict(closed)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		near, err := p.l.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		c := &pair{near: near, far: far}
		p.mu.Lock()
		p.pairs[c] = true
		f, over := p.now, p.over
		p.mu.Unlock()
		if over || f == reset || f == closed {
			p.end(c, f)
			continue
		}
		p.wg.Go(func() { p.pump(c, near, far) })
		p.wg.Go(func() { p.pump(c, far, near) })
	}
}

// inflict makes f happen from now on.
func (p *proxy) inflict(f fault) {
	p.mu.Lock()
	p.now = f
	close(p.changed)
	p.changed = make(chan struct{})
	var ends []*pair
	for c := range p.pairs {
		c.hurt = false
		if f == reset || f == closed {
			ends = append(ends, c)
		}
	}
	p.mu.Unlock()
	for _, c := range ends {
		p.end(c, f)
	}
}

func (p *proxy) end(c *pair, f fault) {
	for _, conn := range []net.Conn{c.near, c.far} {
		if tcp, ok := conn.(*net.TCPConn); ok && f == reset {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
}

// large is more than a control message of these engines has, so that it is data that is hurt, mostly.
const large = 8 << 10

func (p *proxy) pump(c *pair, from, to net.Conn) {
	buf := make([]byte, 256<<10)
	for {
		n, err := from.Read(buf)
		b, ok := p.treat(c, buf[:n])
		if !ok {
			return
		}
		if len(b) > 0 {
			if _, werr := to.Write(b); werr != nil && err == nil {
				err = werr
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) || p.closeWrite(to) != nil {
				p.end(c, healthy)
			}
			return
		}
	}
}

func (p *proxy) closeWrite(conn net.Conn) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return net.ErrClosed
	}
	return tcp.CloseWrite()
}

// treat does to b what the fault at hand does, waiting as long as nothing passes. False: the connection is over.
func (p *proxy) treat(c *pair, b []byte) ([]byte, bool) {
	for {
		p.mu.Lock()
		f, changed, alive := p.now, p.changed, p.pairs[c]
		hurt := (f == flipped || f == shortened) && len(b) >= large && !c.hurt
		if hurt {
			c.hurt = true
			at := p.rng.IntN(len(b) - 64)
			if f == flipped {
				b[at] ^= 1 << p.rng.IntN(8)
			} else {
				n := 1 + p.rng.IntN(63)
				b = append(b[:at], b[at+n:]...)
			}
		}
		p.mu.Unlock()
		if f != stalled || !alive {
			return b, alive
		}
		<-changed
	}
}
