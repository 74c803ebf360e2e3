package session

import (
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/pulse"
)

const (
	slowWatch = 250 * time.Millisecond // for heartbeats, credits of sessions with little traffic, and clients that block
	idleWatch = 500 * time.Millisecond // the same, when no session has done anything for a while
	restWatch = time.Second            // the same, when clients have also collected everything
	fastWatch = 200 * time.Microsecond // at first, while somebody waits for a word that nobody rings for
	lazyWatch = 5 * time.Millisecond   // at last, after a long wait
	eagerness = 100 * time.Millisecond // how long a client that does not collect is looked at often
	ringWatch = 5 * time.Millisecond   // when to look again at a wake-up that was under way
)

// WatchProgress asks for one report of the session's progress, once it has reached Value. 0 withdraws that.
func (v *Server) WatchProgress(e transfer.WatchProgress) {
	s := v.find(e.Session)
	if s == nil {
		return
	}
	s.mu.Lock()
	if !s.gone {
		s.waiting.Store(int64(v.age()))
		s.watched.Store(e.Value)
		s.words.WaitProgress(e.Value)
	}
	s.mu.Unlock()
	// The client stores its progress, then reads what is waited for. Here it is the other way round, so one of the two
	// sees the other.
	if s.checkProgress(); s.watched.Load() != 0 {
		v.look() // progress that a stream writes rings nothing
	}
}

// checkProgress reports progress that is waited for.
func (s *session) checkProgress() {
	if s.watched.Load() != 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.checkProgressLocked()
	}
}

// checkProgressLocked is checkProgress for callers that hold mu.
func (s *session) checkProgressLocked() {
	want := s.watched.Load()
	if s.gone || want == 0 {
		return
	}
	now, err := s.words.Progress()
	if err != nil {
		s.end(transfer.Cause{Reason: transfer.Invalid, Text: err.Error()})
		return
	}
	s.progress = max(s.progress, now) // it never moves back
	if s.progress >= want {
		s.watched.Store(0)
		s.words.WaitProgress(0)
		s.srv.cfg.Events(transfer.Progress{Session: s.id, Value: s.progress})
	}
}

// look has the watch look often until nobody needs it.
func (v *Server) look() {
	select {
	case v.poke <- struct{}{}:
	default:
	}
}

// watch does what no client rings for. It also frees whoever a client blocks, so it never waits for a session's lock:
// the holder may be the one that is blocked.
func (v *Server) watch() {
	var still stall
	slow := time.NewTimer(still.expect(time.Now(), slowWatch))
	defer slow.Stop()
	fast := newSoon()
	defer fast.Stop()
	for {
		select {
		case <-v.gone:
			return
		case <-slow.C:
			if late := still.late(time.Now()); late > 0 {
				v.cfg.Log.Warn("the daemon stood still", "for", late.Round(time.Millisecond),
					"why", "it was stopped, or all processors were taken: engines give up loads meanwhile")
			}
			next := restWatch
			for _, s := range v.all() {
				next = min(next, s.tick())
			}
			slow.Reset(still.expect(time.Now(), pulse.Until(next)))
		case <-v.poke:
			fast.in(fastWatch)
		case <-fast.C:
			fast.due = time.Time{}
			var next time.Duration
			for _, s := range v.all() {
				if d := s.glance(); d > 0 && (next == 0 || d < next) {
					next = d
				}
			}
			if next > 0 {
				fast.in(next)
			}
		}
	}
}

// soon is a timer that is only ever brought forward, so that asking again and again does not put it off.
type soon struct {
	*time.Timer
	due time.Time // zero: it is not set
}

func newSoon() *soon {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &soon{Timer: t}
}

func (t *soon) in(d time.Duration) {
	if at := time.Now().Add(d); t.due.IsZero() || at.Before(t.due) {
		t.due = at
		t.Reset(d)
	}
}

// age returns how long the server has existed.
func (v *Server) age() time.Duration { return time.Since(v.start) }

// beat returns the daemon's monotonic time in milliseconds, never 0.
func (v *Server) beat() uint64 { return uint64(v.age().Milliseconds()) + 1 }

// tick looks after a session, a few times a second, and returns when to come again.
func (s *session) tick() (again time.Duration) {
	switch began := s.ringing.Load(); {
	case began == 0 || began != s.rang:
		s.rang = began
	case s.fds.full():
		s.end(transfer.Cause{Reason: transfer.Invalid, Text: "the client blocks its completion eventfd"})
		s.srv.beware(s.who.UID)
		s.setFree(began)
		return ringWatch
	}
	if s.rang != 0 {
		return ringWatch
	}
	if !s.mu.TryLock() {
		return slowWatch
	}
	defer s.mu.Unlock()
	again = restWatch
	if !s.gone {
		s.words.Beat(s.srv.beat())
		s.collect(s.srv.cfg.Events)
		if s.cq.Outstanding() > 0 {
			again = idleWatch
		}
	}
	if did := s.count.submissions.Load() + s.count.completions.Load(); did != s.ticked {
		s.ticked, again = did, slowWatch
	}
	return again
}

// glance looks at a session that waits for something and returns when to look again, or 0 if it no longer waits. The
// pause is a sixteenth of the time waited so far: a long wait costs little, and a short one loses little.
func (s *session) glance() time.Duration {
	if s.watched.Load() == 0 && !s.stalled.Load() && !s.eager.Load() {
		return 0
	}
	waited := s.srv.age() - time.Duration(s.waiting.Load())
	again := min(max(waited/16, fastWatch), lazyWatch)
	if !s.mu.TryLock() {
		return again
	}
	defer s.mu.Unlock()
	if s.gone {
		return 0
	}
	s.checkProgressLocked()
	if s.eager.Load() || s.stalled.Load() {
		if before := s.cq.Outstanding(); s.lookAtCredits() < before {
			s.waiting.Store(int64(s.srv.age())) // the client is collecting
		}
		s.eager.Store(s.pressed() && waited < eagerness)
	}
	if s.stalled.Load() && (s.unread || s.cq.Outstanding()+s.running() < s.reserve) && s.room() {
		s.stalled.Store(false)
		select {
		case s.resume <- struct{}{}:
		default:
		}
		if b := s.srv.busy; b != nil {
			b.wake()
		}
	}
	if s.watched.Load() == 0 && !s.eager.Load() && !s.stalled.Load() {
		return 0
	}
	return again
}

func (s *session) lookAtCredits() (outstanding uint32) {
	s.collect(s.srv.cfg.Events)
	return s.cq.Outstanding()
}
