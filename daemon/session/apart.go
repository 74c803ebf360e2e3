package session

import (
	"runtime"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// A client shares the open file of its completion eventfd with the daemon. It can fill the count and make writes to it
// block, and so hold up whoever wakes it. The watch frees whoever is held up. From then on, clients of the same user
// are woken apart: each session has a goroutine of its own for that, which its client may hold up for as long as it
// likes. This costs a hop for each wake-up, and nobody else waits. Before Linux 5.8 nobody could be freed, but
// sys.EventfdRing does not block there either.

// wary is a set of users. The zero value is empty.
type wary struct {
	users    map[uint32]struct{}
	everyone bool // there were too many to remember
}

// maxWary is far more than a node has users with engines. Only a client that can take any uid uses so many.
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

// beware has all clients of a user woken apart, including those that come later.
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

// signalApart has the session's own goroutine wake the client. The caller holds mu.
func (s *session) signalApart() {
	if s.woken == nil {
		s.woken = make(chan struct{})
		go s.wakeApart()
	}
	select {
	case s.bell <- struct{}{}:
	default: // a wake-up is pending already
	}
}

func (s *session) wakeApart() {
	defer close(s.woken)
	for range s.bell {
		s.wake()
	}
}

// hush returns once nobody wakes the client apart any more. Nobody may ring after it. An honest client still gets the
// last wake-up.
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

// unblockTries bounds how often setFree tries at one go, against a client whose own writers fill the count again.
const unblockTries = 1 << 12

// setFree frees whoever is held up in the wake-up that began at the time began.
func (s *session) setFree(began int64) {
	for range unblockTries {
		if s.ringing.Load() != began {
			return
		}
		s.fds.unblock()
		runtime.Gosched()
	}
}
