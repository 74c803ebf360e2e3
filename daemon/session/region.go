package session

import (
	"math"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// removal is a region that the client wants back. It stays registered until a request is answered with success.
type removal struct {
	drained bool
	waiting bool // a request waits
	seq     uint32
	timer   *time.Timer
}

// register maps what came with the message.
func (s *session) register(m *message) (uint64, error) {
	var r ring.Register
	rest, err := ring.Decode(m.body, &r, "register")
	if err != nil {
		return 0, invalid("%v", err)
	}
	switch {
	case len(rest) != 0:
		return 0, invalid("register: %d bytes too many", len(rest))
	case r.Kind != ring.RegisterMemfd:
		return 0, invalid("register: kind is %d: this daemon knows 1 (memfd)", r.Kind)
	case r.Flags&^ring.RegisterSkip != 0:
		return 0, invalid("register: flags are %#x: must be %#x at most", r.Flags, ring.RegisterSkip)
	case len(m.fds) != 1:
		return 0, invalid("register: came with %d descriptors: must be one", len(m.fds))
	}
	id, err := s.mem.RegisterAfter(m.fds[0], r.Flags&ring.RegisterSkip, r.Bytes)
	if err != nil {
		return 0, err
	}
	s.log.Debug("region registered", "region", uint64(id), "bytes", r.Bytes)
	return uint64(id), nil
}

// unregister asks the driver to fence a region. later: RegionDrained or the timeout answers.
func (s *session) unregister(m *message) (later bool, err error) {
	var u ring.Unregister
	rest, err := ring.Decode(m.body, &u, "unregister")
	if err != nil {
		return false, invalid("%v", err)
	}
	if len(rest) != 0 {
		return false, invalid("unregister: %d bytes too many", len(rest))
	}
	id := layout.RegionID(u.Region)
	wait := unregisterWait
	if u.TimeoutNS != 0 {
		wait = time.Duration(min(u.TimeoutNS, math.MaxInt64))
	}
	s.mu.Lock()
	r := s.removals[id]
	switch {
	case r == nil:
		if _, ok := s.mem.Size(id); !ok {
			s.mu.Unlock()
			return false, s.mem.Remove(id) // says what is wrong with the id
		}
		r = &removal{}
		s.removals[id] = r
		defer s.srv.cfg.Events(transfer.RegionRemoved{Session: s.id, Region: id})
	case r.waiting:
		s.mu.Unlock()
		return false, refuse(transfer.Busy, "region %#x is being unregistered already", u.Region)
	}
	r.waiting, r.seq = true, m.seq
	if r.drained {
		s.finishRemoval(id, r)
	} else {
		r.timer = time.AfterFunc(wait, func() { s.removalTimedOut(id, r, wait) })
	}
	s.mu.Unlock()
	return true, nil
}

// finishRemoval unmaps and answers, elsewhere: unmapping a large region takes a while. The caller holds mu.
func (s *session) finishRemoval(id layout.RegionID, r *removal) {
	seq := r.seq
	delete(s.removals, id)
	if r.timer != nil {
		r.timer.Stop()
	}
	s.jobs.Go(func() {
		_ = s.ack(seq, 0, causeOf(s.mem.Remove(id)))
	})
}

func (s *session) removalTimedOut(id layout.RegionID, r *removal, wait time.Duration) {
	s.mu.Lock()
	if s.removals[id] != r || !r.waiting || r.drained {
		s.mu.Unlock()
		return
	}
	r.waiting = false
	seq := r.seq
	s.jobs.Add(1)
	s.mu.Unlock()
	defer s.jobs.Done()
	_ = s.ack(seq, 0, transfer.Cause{Reason: transfer.Timeout,
		Text: "region is still in use after " + wait.String() + ": its operations are ending, unregister it again"})
}

// forgetRemovals stops all waiting; the session has ended.
func (s *session) forgetRemovals() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, r := range s.removals {
		if r.timer != nil {
			r.timer.Stop()
		}
		delete(s.removals, id)
	}
}

// RegionDrained says that nothing touches the region any more: it is unmapped now, and the client's request answered.
func (v *Server) RegionDrained(e transfer.RegionDrained) {
	s := v.find(e.Session)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.removals[e.Region]; r != nil && !r.drained {
		r.drained = true
		if r.waiting {
			s.finishRemoval(e.Region, r)
		}
	}
}
