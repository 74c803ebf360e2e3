package daemon

import (
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// lateEvery is how often a port that cannot be had is tried again.
const lateEvery = 5 * time.Second

// late listens at a TCP port that another process has still, or whose interface is not there. Accept tries again now and then until it can be
// had; meanwhile nobody comes, and all else runs. Its methods are those of a *net.TCPListener.
type late struct {
	at     *net.TCPAddr
	every  time.Duration
	opened func()
	done   chan struct{} // closed by Close
	look   chan struct{} // there is a new deadline
	next   time.Time     // of Accept alone: when to try

	mu       sync.Mutex
	closed   bool
	l        *net.TCPListener // nil: not yet
	deadline time.Time
}

// listenLate returns a listener for a port that can't be had now. opened is called when it can.
func listenLate(addr string, opened func()) (*late, error) {
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &late{at: at, every: lateEvery, opened: opened, done: make(chan struct{}), look: make(chan struct{}, 1)}, nil
}

// Accept waits for the port, then for a connection.
func (p *late) Accept() (net.Conn, error) {
	for {
		p.mu.Lock()
		l, over := p.l, !p.deadline.IsZero() && !p.deadline.After(time.Now())
		p.mu.Unlock()
		switch {
		case l != nil:
			return l.Accept()
		case over:
			return nil, os.ErrDeadlineExceeded
		}
		if p.next.IsZero() {
			p.next = time.Now().Add(p.every)
		}
		t := time.NewTimer(time.Until(p.next))
		select {
		case <-p.done:
			t.Stop()
			return nil, net.ErrClosed
		case <-p.look:
		case <-t.C:
			p.next = time.Time{}
			p.open()
		}
		t.Stop()
	}
}

func (p *late) open() {
	l, err := net.ListenTCP("tcp", p.at)
	if err != nil {
		return
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		_ = l.Close()
		return
	}
	p.l = l
	_ = l.SetDeadline(p.deadline)
	p.mu.Unlock()
	p.opened()
}

// SetDeadline is for Accept, as that of *net.TCPListener.
func (p *late) SetDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.l != nil:
		return p.l.SetDeadline(t)
	case p.closed:
		return net.ErrClosed
	}
	p.deadline = t
	select {
	case p.look <- struct{}{}:
	default:
	}
	return nil
}

// Close ends Accept.
func (p *late) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	p.closed = true
	close(p.done)
	if p.l != nil {
		return p.l.Close()
	}
	return nil
}

// Addr is the address, open or not.
func (p *late) Addr() net.Addr { return p.at }

// ports says which of the daemon's are not open, by their keys of the configuration, and why. The zero value works.
type ports struct {
	mu  sync.Mutex
	why map[string]error
}

func (p *ports) shut(key string, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why == nil {
		p.why = map[string]error{}
	}
	p.why[key] = why
}

func (p *ports) open(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.why, key)
}

// problems are in the order of their keys.
func (p *ports) problems() (out []warning) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(p.why)) {
		out = append(out, warning{key, p.why[key].Error()})
	}
	return out
}
