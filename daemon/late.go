package daemon

import (
	"context"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// lateEvery is how often a port that cannot be had is tried again.
const lateEvery = 5 * time.Second

// late listens at a TCP port that cannot be had yet: another process has it, its interface is not there, or its name is
// not known. Accept tries again now and then until it can be had. Meanwhile nobody connects, and all else runs. Its
// methods are those of a *net.TCPListener.
type late struct {
	addr   net.Addr
	all    bool // it may stand for all addresses of this node
	every  time.Duration
	opened func(error)     // told each time why not yet, and nil when it can be had
	ctx    context.Context // until Close
	stop   func()
	look   chan struct{} // there is a new deadline
	next   time.Time     // Accept's alone: when to try
	trying chan struct{} // Accept's alone: closed when a try is over; nil: there is none

	mu       sync.Mutex
	l        *net.TCPListener // nil: not yet
	deadline time.Time
}

// name is a TCP address that cannot be looked up yet.
type name string

func (name) Network() string  { return "tcp" }
func (n name) String() string { return string(n) }

// listenLate returns a listener for a port that cannot be had now. It calls opened with why each try failed, and with
// nil when one does not.
func listenLate(addr net.Addr, all bool, opened func(error)) *late {
	p := &late{addr: addr, all: all, every: lateEvery, opened: opened, look: make(chan struct{}, 1)}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// Accept waits for the port, then for a connection.
func (p *late) Accept() (net.Conn, error) {
	for {
		p.mu.Lock()
		l, over := p.l, !p.deadline.IsZero() && !p.deadline.After(time.Now())
		p.mu.Unlock()
		switch {
		case p.ctx.Err() != nil:
			if p.trying != nil {
				<-p.trying
			}
			return nil, net.ErrClosed
		case l != nil:
			return l.Accept()
		case over:
			return nil, os.ErrDeadlineExceeded
		}
		p.wait()
	}
}

// wait waits until there may be something new. When it is time for a try, it begins one in a goroutine: looking a name
// up can take longer than the watchdog waits for the accept loop.
func (p *late) wait() {
	var due <-chan time.Time
	if p.trying == nil {
		if p.next.IsZero() {
			p.next = time.Now().Add(p.every)
		}
		t := time.NewTimer(time.Until(p.next))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-p.ctx.Done():
	case <-p.look:
	case <-p.trying:
		p.trying = nil
	case <-due:
		p.next, p.trying = time.Time{}, make(chan struct{})
		go func(over chan struct{}) {
			defer close(over)
			p.open()
		}(p.trying)
	}
}

func (p *late) open() {
	var config net.ListenConfig
	l, err := config.Listen(p.ctx, network(p.addr.String()), p.addr.String())
	if err != nil {
		p.opened(err)
		return
	}
	t := l.(*net.TCPListener)
	if !p.all && t.Addr().(*net.TCPAddr).IP.IsUnspecified() {
		_ = t.Close()
		p.opened(errEverywhere)
		return
	}
	p.mu.Lock()
	if p.ctx.Err() != nil {
		p.mu.Unlock()
		_ = t.Close()
		return
	}
	p.l = t
	_ = p.l.SetDeadline(p.deadline)
	p.mu.Unlock()
	p.opened(nil)
}

// SetDeadline sets the deadline of Accept, as that of *net.TCPListener does.
func (p *late) SetDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.l != nil:
		return p.l.SetDeadline(t)
	case p.ctx.Err() != nil:
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
	if p.ctx.Err() != nil {
		return net.ErrClosed
	}
	p.stop()
	if p.l != nil {
		return p.l.Close()
	}
	return nil
}

// Addr returns the address, open or not.
func (p *late) Addr() net.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.l != nil {
		return p.l.Addr()
	}
	return p.addr
}

// ports says which of the daemon's ports are not open, and why, by their keys in the configuration. The zero value
// works.
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

// problems returns them in the order of their keys.
func (p *ports) problems() (out []warning) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(p.why)) {
		out = append(out, warning{key, p.why[key].Error()})
	}
	return out
}
