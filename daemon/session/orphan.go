package session

import (
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// A session whose process died may leave finished offers behind, and a sender's, however it ended, items. Then all of it ends but its memory,
// of which no more stays than those need, until the driver says that nothing touches it any more.

// SessionOrphaned says what has to stay of a closed session's memory; SessionDrained follows.
func (v *Server) SessionOrphaned(e transfer.SessionOrphaned) {
	if s := v.find(e.Session); s != nil {
		s.orphan.Do(func() {
			s.keep = e
			close(s.orphaned)
		})
	}
}

// exitWait is how long the end of a process may take after that of its memory and its connection: other descriptors may be slow to close.
const exitWait = 2 * time.Second

// died says whether the session ended because its process did. A client that only closes its connection may write its memory still.
func (s *session) died() bool {
	if s.cause.Reason != transfer.PeerGone {
		return false
	}
	p := s.process.Load()
	switch {
	case p == nil:
		return true // its connection is all that there was to see of it
	case p.gone():
		return true
	case s.who.PID > 0:
		// When it cannot be looked at for want of a descriptor, its end tells: what waits for that has one.
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

// lastProgress is the furthest that the client ever said.
func (s *session) lastProgress() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, err := s.words.Progress(); err == nil {
		s.progress = max(s.progress, now)
	}
	return s.progress
}

// leaves says whether somebody still takes what lies in the session's memory.
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

// shrink gives back what no offer or item needs that outlives the session.
func (s *session) shrink() {
	kept, err := s.mem.Retain(func(mark func(layout.RegionID, uint64, uint64)) {
		for _, lists := range s.keep.Keep {
			s.keep.Layout.Extents(lists, mark)
		}
	})
	if err != nil {
		s.log.Warn("memory of an ended session could not be given back yet", "error", err)
	}
	s.log.Info("memory of an ended session stays for who takes or receives what is in it", "bytes", kept)
	s.keep = transfer.SessionOrphaned{}
}

// bury moves the session from those that are connected to those of which only memory is left.
func (v *Server) bury(s *session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.change(nil, s, s)
}

// Orphaned returns how many bytes ended sessions left behind for those who take their finished offers, or receive what they had put.
func (v *Server) Orphaned() (n uint64) {
	for _, s := range v.sessions.Load().orphans {
		n += s.mem.Used()
	}
	return n
}

// leaving says that the session ends, or will as soon as it hears that its client is gone.
func (s *session) leaving() bool {
	select {
	case <-s.ending:
		return true
	default:
		return sys.HungUp(s.conn) || s.bereft()
	}
}

// bereft says that the session's process has ended, or is about to.
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

// mourn waits until those sessions of the engine have ended that a new instance is to replace and whose process is gone already: a
// process that was killed and is back at once may be faster than the news of its death, and what it finished is to outlive it.
func (v *Server) mourn(who identity) {
	for _, s := range v.all() {
		if s.who.Engine != who.Engine || s.who.Owner != who.Owner || s.who.Instance == who.Instance {
			continue
		}
		if !s.bereft() {
			continue
		}
		s.end(transfer.Cause{Reason: transfer.PeerGone, Text: processEnded})
		select {
		case <-s.left:
		case <-time.After(helloTimeout):
		case <-v.stop:
		}
	}
}
