package session

import (
	"sync"
	"sync/atomic"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// A scheduler's submission is about the processes that have its engine's ranks at that moment. The daemon may read it
// late, when another process has come for a rank. Then it counts as submitted before that, like what is sent again
// after a restart, and the machine refuses it.

// outdated says which submissions of a ring are about earlier processes.
type outdated struct {
	mu    sync.Mutex // held briefly only: a holder of the session's other locks may be held up by its client
	over  bool       // the ring is unmapped
	some  atomic.Bool
	any   bool   // an unread one may be
	until uint32 // the index of the first that is not
}

// outdate makes all that is in the rings of an engine's schedulers count as submitted before the worker that comes now.
func (v *Server) outdate(who *identity) {
	for _, s := range v.all() {
		if s.who.Role == transfer.Scheduler && s.who.engine() == who.engine() && s.who.Instance == who.Instance {
			s.outdate()
		}
	}
}

func (s *session) outdate() {
	o := &s.outdated
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return
	}
	if tail := s.sq.Tail(); tail != 0 {
		o.some.Store(true)
		o.any, o.until = true, tail
	}
}

// unmapped must be called before the ring is unmapped.
func (o *outdated) unmapped() {
	o.mu.Lock()
	o.over = true
	o.mu.Unlock()
}

// has reports whether the submission with that index is about earlier processes. The caller holds mu.
func (o *outdated) has(index uint32) bool {
	o.any = o.any && int32(o.until-index) > 0 // false for good once the index passes until: indices come again
	return o.any
}
