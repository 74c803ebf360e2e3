package session

import (
	"runtime"
	"sync/atomic"
	"time"
)

// poller reads the rings of all sessions on one thread while there is something to read, and Config.Spin longer. Then it asks all
// clients to ring, and sleeps until a reader wakes it.
type poller struct {
	srv     *Server
	polling atomic.Bool // readers need not arm
	woken   chan struct{}
}

func newPoller(v *Server) *poller { return &poller{srv: v, woken: make(chan struct{}, 1)} }

func (p *poller) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

func (p *poller) run() {
	runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
	for {
		select {
		case <-p.srv.stop:
			return
		case <-p.woken:
		}
		p.polling.Store(true)
		for idle := time.Now(); ; {
			if p.visit() {
				idle = time.Now()
			} else if time.Since(idle) > p.srv.cfg.Spin {
				break
			}
			select {
			case <-p.srv.stop:
				return
			default:
			}
		}
		p.polling.Store(false)
		if p.arm() {
			p.wake()
		}
	}
}

// visit looks at every session once; true: one had something to say.
func (p *poller) visit() bool {
	any := false
	for _, s := range p.srv.all() {
		s.checkProgress()
		if s.stalled.Load() || !s.in.TryLock() {
			continue // its reader is at it
		}
		found := false
		if !s.stopped {
			s.sq.Disarm()
			n, _ := s.pumpLocked()
			found = n > 0
		}
		s.in.Unlock()
		if found {
			p.srv.cfg.Flush()
			any = true
		}
	}
	return any
}

// arm asks every client to ring; true: something came in meanwhile.
func (p *poller) arm() bool {
	pending := false
	for _, s := range p.srv.all() {
		s.in.Lock()
		if !s.stopped && !s.sq.Arm() {
			pending = true
		}
		s.in.Unlock()
	}
	return pending
}
