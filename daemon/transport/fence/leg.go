package fence

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Report is told the end of each slice, once and with no lock held: how it went at the source and at the destination.
// It must not block. When only one end is on this node, only that end's cause means anything.
type Report func(key transfer.SliceKey, sent, landed transfer.Cause)

// Leg is one end of a transfer, or both ends when one copy serves both. Safe for concurrent use.
type Leg struct {
	report Report
	fenced atomic.Bool

	mu      sync.Mutex
	idle    Slice // head of the ring of slices that no worker is inside of
	open    int   // slices not reported yet
	cause   transfer.Cause
	waiting []func()
}

// NewLeg returns a leg that reports the ends of its slices to report.
func NewLeg(report Report) *Leg {
	l := &Leg{report: report}
	l.idle.next, l.idle.prev = &l.idle, &l.idle
	return l
}

// Add begins a slice, which must be new or have ended. It returns false, and reports nothing, if the leg is fenced.
func (l *Leg) Add(s *Slice, key transfer.SliceKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.state != ended {
		// The slice is in a ring already. Linked twice, it would leave a ring that Fence never gets to the end of.
		panic(fmt.Sprintf("fence: slice %+v begins before %+v has ended", key, s.key))
	}
	if l.fenced.Load() {
		return false
	}
	s.leg, s.key = l, key
	s.state = idle
	s.link(&l.idle)
	l.open++
	return true
}

// Fence ends the leg's slices with cause and calls done once all of them have been reported: at once, or on the
// goroutine of the worker that leaves the last one. Fencing again waits for the same reports.
func (l *Leg) Fence(cause transfer.Cause, done func()) {
	l.mu.Lock()
	if !l.fenced.Load() {
		l.cause = cause
		l.fenced.Store(true)
	}
	l.waiting = append(l.waiting, done)
	for l.idle.next != &l.idle {
		s := l.idle.next
		key := s.key
		s.end()
		l.mu.Unlock()
		l.report(key, cause, cause)
		l.mu.Lock()
		l.open--
	}
	l.settle()
}

// Cancelled is true from Fence on. A copy checks it between two pieces.
func (l *Leg) Cancelled() *atomic.Bool { return &l.fenced }

// settle calls the waiting functions if the leg is fenced and all slices are reported. It is called with the lock held
// and releases it.
func (l *Leg) settle() {
	var done []func()
	if l.fenced.Load() && l.open == 0 {
		done, l.waiting = l.waiting, nil
	}
	l.mu.Unlock()
	for _, f := range done {
		f()
	}
}
