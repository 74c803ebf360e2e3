package session

import (
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// A session whose process died may leave finished offers behind. The session of a sender or owner may leave items
// behind, however it ended. Then everything of the session ends except the memory that those need. It stays until the
// driver says that nothing touches it any more.

// SessionOrphaned says which part of a closed session's memory has to stay. SessionDrained follows.
func (v *Server) SessionOrphaned(e transfer.SessionOrphaned) {
	if s := v.find(e.Session); s != nil {
		s.orphan.Do(func() {
			s.keep = e
			close(s.orphaned)
		})
	}
}

// exitWait is how long the end of a process may take after its memory and its connection are gone: other descriptors
// may be slow to close.
const exitWait = 2 * time.Second

// died reports whether the session ended because its process did. A client that only closes its connection may still
// write its memory.
func (s *session) died() bool {
	if s.cause.Reason != transfer.PeerGone {
		return false
	}
	p := s.process.Load()
	switch {
	case p == nil:
		return true // its connection is all that could be seen of it
	case p.gone():
		return true
	case s.who.PID > 0:
		// If a lack of descriptors keeps us from looking, wait for its end: the goroutine that watches for it has a
		// descriptor.
		if exiting, err := sys.Exiting(s.srv.cfg.ProcRoot, s.who.PID); !exiting && !scarce(err) {
			return false
		}
	}
	select {
	case <-p.done:
		return p.gone()
	case <-time.After(exitWait):
		return false
	case <-s.srv.forced:
		return false
	}
}

// lastProgress returns the furthest progress that was seen of the client, up to now.
func (s *session) lastProgress() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, err := s.words.Progress(); err == nil {
		s.progress = max(s.progress, now)
	}
	return s.progress
}

// leaves reports whether somebody still takes what lies in the session's memory.
func (s *session) leaves() bool {
	select {
	case <-s.drained:
		return false
	case <-s.srv.forced:
		return false
	default:
	}
	select {
	case <-s.orphaned:
		return true
	default:
		return false
	}
}

// shrink gives back the memory that is needed by no offer or item that outlives the session.
func (s *session) shrink() {
	kept, err := s.mem.Retain(func(mark func(layout.RegionID, uint64, uint64)) {
		if l := s.keep.Layout; l != nil { // else nothing outlives it
			l.Extents(l.Union(s.keep.Keep), mark)
		}
	})
	if err != nil && s.srv.unshrunk.Due() {
		s.log.Warn("memory of an ended session could not be given back yet", "error", err)
	}
	s.tell(s.told, 0, "memory of an ended session stays for who takes or receives what is in it", "bytes", kept)
	s.keep = transfer.SessionOrphaned{}
}

// bury moves the session from those that are connected to those of which only memory is left.
func (v *Server) bury(s *session) {
	s.ended = time.Now()
	v.orphans.Store(s.id, s) // first: it is found at all times
	v.mu.Lock()
	defer v.mu.Unlock()
	v.change(nil, s)
}

// Orphaned returns how many bytes ended sessions left behind for those who still take their finished offers or receive
// their items.
func (v *Server) Orphaned() (n uint64) {
	for _, s := range v.orphans.Range {
		n += s.(*session).mem.Used()
	}
	return n
}

// leaving reports whether the session is ending, or will as soon as it notices that its client is gone.
func (s *session) leaving() bool {
	select {
	case <-s.ending:
		return true
	default:
		return sys.HungUp(s.conn) || s.bereft()
	}
}

// bereft reports whether the session's process has ended or is about to.
func (s *session) bereft() bool {
	p := s.process.Load()
	switch {
	case p == nil:
		return false
	case p.gone():
		return true
	case s.who.PID <= 0:
		return false
	}
	exiting, _ := sys.Exiting(s.srv.cfg.ProcRoot, s.who.PID)
	return exiting
}

// mourn waits for the end of those sessions of the engine whose process is gone already and which a new instance is to
// replace. A process that was killed and is back at once may be faster than the news of its death, and what the old one
// finished has to outlive it.
func (v *Server) mourn(who identity) {
	var dead []*session
	for _, s := range v.all() {
		if s.who.Engine == who.Engine && s.who.Owner == who.Owner && s.who.Instance != who.Instance && s.bereft() {
			s.end(transfer.Cause{Reason: transfer.PeerGone, Text: processEnded}) // of all ranks at one time
			dead = append(dead, s)
		}
	}
	late := time.NewTimer(helloTimeout)
	defer late.Stop()
	for _, s := range dead {
		select {
		case <-s.left:
		case <-late.C:
			return
		case <-v.stop:
			return
		}
	}
}
