package session

import (
	"sync"
	"sync/atomic"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// What a scheduler submits is about the processes that have its engine's ranks by then. The daemon may come to read it late, when another one
// has come for a rank: then it counts as submitted before, as what is sent again after a restart does, and the machine refuses it.

// outdated says which submissions of a ring are about the processes of before.
type outdated struct {
	mu    sync.Mutex // held for a moment only: who has the session's other locks may be held up by its client
	over  bool       // the ring is unmapped
	some  atomic.Bool
	any   bool   // one may be that is not read
	until uint32 // the index of the first that is not
}

// outdate has all that is in the rings of an engine's schedulers count as submitted before a worker that comes now.
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

// unmapped is called before the ring is.
func (o *outdated) unmapped() {
	o.mu.Lock()
	o.over = true
	o.mu.Unlock()
}

// has says whether the submission of that index is about the processes of before. The caller holds mu.
func (o *outdated) has(index uint32) bool {
	o.any = o.any && int32(o.until-index) > 0 // once it is passed it stays so: indices come again
	return o.any
}
