package session

import (
	"runtime"
	"sync/atomic"
	"time"
)

// poller reads the rings of all sessions on one goroutine while there is something to read, and for Config.Spin longer.
// Then it asks all clients to ring and sleeps until a reader wakes it.
type poller struct {
	srv     *Server
	polling atomic.Bool // while set, readers need not arm
	woken   chan struct{}
}

func newPoller(v *Server) *poller { return &poller{srv: v, woken: make(chan struct{}, 1)} }

func (p *poller) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// between is how many rounds pass between two looks at the clock.
const between = 64

// yield is how often the goroutine lets others run, which costs it nothing when there are none. The Go runtime
// interrupts a goroutine that runs for 10 ms without a break. When it finds that goroutine in a system call (a wake-up
// of a client), it takes its processor away and looks after it every 100 us for the next milliseconds. Each such look
// is an interruption of several microseconds.
const yield = 4 * time.Millisecond

func (p *poller) run() {
	for {
		select {
		case <-p.srv.stop:
			return
		case <-p.woken:
		}
		p.polling.Store(true)
		p.disarm()
		p.poll()
		p.polling.Store(false)
		if p.arm() {
			p.wake()
		}
	}
}

// poll visits the sessions until there was nothing to read for Config.Spin, or the server stops.
func (p *poller) poll() {
	now := time.Now()
	last, yielded, found := now, now, false
	for rounds := 1; ; rounds++ {
		found = p.visit() || found
		if rounds%between != 0 {
			continue
		}
		now = time.Now()
		if found {
			last, found = now, false
		}
		if now.Sub(last) > p.srv.cfg.Spin || p.stopping() {
			return
		}
		if now.Sub(yielded) > yield {
			yielded = now
			runtime.Gosched()
		}
	}
}

// visit looks at every session once and reports whether it read anything.
func (p *poller) visit() bool {
	any := false
	for _, s := range p.srv.all() {
		if s.watched.Load() != 0 {
			s.checkProgress()
		}
		if s.stalled.Load() || !s.in.TryLock() {
			continue // its reader is at it, or its next submission has to wait
		}
		n, stalled := 0, false
		if !s.stopped && s.sq.Pending() {
			n, _, stalled = s.pumpLocked()
		}
		s.in.Unlock()
		if n > 0 || stalled {
			p.srv.cfg.Flush()
		}
		any = any || n > 0
	}
	return any
}

func (p *poller) stopping() bool {
	select {
	case <-p.srv.stop:
		return true
	default:
		return false
	}
}

// disarm tells every client that it need not ring. Clients that come later are not asked to ring in the first place.
func (p *poller) disarm() {
	for _, s := range p.srv.all() {
		s.in.Lock()
		if !s.stopped {
			s.sq.Disarm()
		}
		s.in.Unlock()
	}
}

// arm asks every client to ring and reports whether something came in meanwhile. It leaves out sessions whose next
// submission has to wait: whoever sees that it need not any more wakes the poller.
func (p *poller) arm() bool {
	pending := false
	for _, s := range p.srv.all() {
		s.in.Lock()
		if !s.stopped && !s.stalled.Load() && !s.sq.Arm() {
			pending = true
		}
		s.in.Unlock()
	}
	return pending
}
