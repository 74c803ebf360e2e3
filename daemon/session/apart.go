package session

import (
	"runtime"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// A client shares the open file of its completion eventfd: it can fill the count and make writes to it block, and so hold up who wakes it.
// The watch sets that one free. From then on sessions of the same user are woken apart, each by a goroutine of its own, which its client
// may hold up for as long as it likes: a hop for each wake-up, and nobody else waits. Before Linux 5.8 nobody could be set free, nor is held up.

// wary has users. The zero value has none.
type wary struct {
	users    map[uint32]struct{}
	everyone bool // there were too many to remember
}

// maxWary is far more users than a node has engines of: one client that can be whom it likes has so many.
const maxWary = 1024

func (w *wary) of(uid uint32) bool {
	_, yes := w.users[uid]
	return yes || w.everyone
}

func (w *wary) add(uid uint32) {
	if len(w.users) >= maxWary {
		w.everyone, w.users = true, nil
		return
	}
	if w.users == nil {
		w.users = map[uint32]struct{}{}
	}
	w.users[uid] = struct{}{}
}

// beware has all clients of a user woken apart, those to come too.
func (v *Server) beware(uid uint32) {
	v.mu.Lock()
	known := v.wary.of(uid)
	if !known {
		v.wary.add(uid)
	}
	for _, s := range v.all() {
		if v.wary.of(s.who.UID) {
			s.apart.Store(true)
		}
	}
	v.mu.Unlock()
	if !known {
		v.cfg.Log.Warn("a client blocks its completion eventfd: those of its user are woken apart until this daemon is restarted", "uid", uid)
	}
}

// signalApart has the goroutine wake the client. The caller holds mu.
func (s *session) signalApart() {
	if s.woken == nil {
		s.woken = make(chan struct{})
		go s.wakeApart()
	}
	select {
	case s.bell <- struct{}{}:
	default: // it is about to
	}
}

func (s *session) wakeApart() {
	defer close(s.woken)
	for range s.bell {
		s.wake()
	}
}

// hush returns when nobody wakes the client apart any more. Nobody rings after it. An honest client keeps the last wake-up.
func (s *session) hush() {
	close(s.bell)
	if s.woken == nil {
		return
	}
	late := time.NewTicker(ringWatch)
	defer late.Stop()
	for {
		select {
		case <-s.woken:
			return
		case <-late.C:
			if began := s.ringing.Load(); began != 0 && s.fds.full() {
				s.setFree(began)
			}
		}
	}
}

// wake writes to the client's eventfd.
func (s *session) wake() {
	s.ringing.Store(int64(s.srv.age()) | 1)
	err := sys.EventfdRing(s.fds.cq)
	s.ringing.Store(0)
	if err != nil {
		s.end(transfer.Cause{Reason: transfer.Invalid, Text: err.Error()})
	}
}

// unblockTries bounds how long is contended with a client's own writers at one go.
const unblockTries = 1 << 12

// setFree lets whoever is held up in the wake that began then go on.
func (s *session) setFree(began int64) {
	for range unblockTries {
		if s.ringing.Load() != began {
			return
		}
		s.fds.unblock()
		runtime.Gosched()
	}
}
