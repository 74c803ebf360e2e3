package session

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// removal is a region that the client wants back. The region stays mapped and keeps its name until a request is
// answered with success. But from the first request on, even if that is answered TIMEOUT, the machine ends and refuses
// what uses the region; for good if the region is to be unregistered.
type removal struct {
	stays   bool // it only loses its memory
	drained bool
	waiting bool // a request waits
	seq     uint32
	timer   *time.Timer
}

// register maps the memory that came with the message.
func (s *session) register(m *message) (uint64, error) {
	var r ring.Register
	rest, err := ring.Decode(m.body, &r, "register")
	if err != nil {
		return 0, invalid("%v", err)
	}
	switch {
	case s.who.Role == transfer.Scheduler:
		return 0, invalid("register: a scheduler owns no memory: its workers register it")
	case len(rest) != 0:
		return 0, invalid("register: %d bytes too many", len(rest))
	case r.Kind != ring.RegisterMemfd:
		return 0, invalid("register: kind is %d: this daemon knows 1 (memfd)", r.Kind)
	case r.Flags&^(ring.RegisterSkip|ring.RegisterInvalid) != 0:
		return 0, invalid("register: flags are %#x: known are %#x", r.Flags, ring.RegisterSkip|ring.RegisterInvalid)
	case r.Flags&ring.RegisterInvalid != 0:
		return s.registerInvalid(m, &r)
	case len(m.fds) != 1:
		return 0, invalid("register: came with %d descriptors: must be one", len(m.fds))
	}
	id, err := s.mem.RegisterAfter(m.fds[0], r.Flags&ring.RegisterSkip, r.Bytes)
	if err != nil {
		return 0, err
	}
	s.log.Debug("region registered", "region", fmt.Sprintf("%#x", uint64(id)), "bytes", r.Bytes)
	return uint64(id), nil
}

// registerInvalid names a region that a session brings back without its memory.
func (s *session) registerInvalid(m *message, r *ring.Register) (uint64, error) {
	if len(m.fds) != 0 {
		return 0, invalid("register: came with %d descriptors: must be none where the region is invalid", len(m.fds))
	}
	id, err := s.mem.RegisterVacant(r.Flags&ring.RegisterSkip, r.Bytes)
	if err != nil {
		return 0, err
	}
	s.givesUp(id)
	s.srv.cfg.Events(transfer.RegionInvalidated{Session: s.id, Region: id})
	return uint64(id), nil
}

// takeBack asks the driver to fence a region, to unregister it or (stays) to take only its memory. later says that
// RegionDrained or the timeout answers. If an older request still waits, its client has given that up and asked again:
// the older one is answered at once.
func (s *session) takeBack(m *message, stays bool) (later bool, err error) {
	name := "unregister"
	if stays {
		name = "invalidate"
	}
	var u ring.Unregister
	rest, err := ring.Decode(m.body, &u, name)
	if err != nil {
		return false, invalid("%v", err)
	}
	if len(rest) != 0 {
		return false, invalid("%s: %d bytes too many", name, len(rest))
	}
	id := layout.RegionID(u.Region)
	wait := unregisterWait
	if u.TimeoutNS != 0 {
		wait = time.Duration(min(u.TimeoutNS, math.MaxInt64))
	}
	var tell transfer.Event = transfer.RegionRemoved{Session: s.id, Region: id}
	if stays {
		tell = transfer.RegionInvalidated{Session: s.id, Region: id}
		s.givesUp(id)
	}
	s.mu.Lock()
	r := s.removals[id]
	switch {
	case r == nil:
		if _, ok := s.mem.Size(id); !ok {
			s.mu.Unlock()
			return false, s.mem.Remove(id) // says what is wrong with the id
		}
		r = &removal{stays: stays}
		s.removals[id] = r
		defer s.srv.cfg.Events(tell)
	case stays && !r.stays:
		s.mu.Unlock()
		return false, refuse(transfer.Busy, "region %#x is being %s already", u.Region, r.name())
	case r.stays && !stays: // the client no longer waits for the invalidation
		r.stays = false
		defer s.srv.cfg.Events(tell)
	}
	older, was := r.waiting, r.seq
	r.waiting, r.seq = true, m.seq
	switch {
	case !r.drained:
		if r.timer != nil {
			r.timer.Stop()
		}
		seq := r.seq
		r.timer = time.AfterFunc(wait, func() { s.removalTimedOut(id, r, seq, wait) })
	case !older: // else it is being unmapped, and the newest request gets the answer
		s.finishRemoval(id, r)
	}
	s.mu.Unlock()
	if older {
		m.seq = was // the caller answers the older request
		return false, refuse(transfer.Timeout, "region %#x: another request for it came, which is answered instead", u.Region)
	}
	return true, nil
}

// givesUp writes down that the session gives memory up, or comes back without it, which operations of its engine's
// schedulers may be about.
func (s *session) givesUp(id layout.RegionID) {
	if s.who.Role == transfer.Worker && (s.layout == nil || slices.ContainsFunc(s.layout.Views(), func(v layout.View) bool { return v.Region == id })) {
		s.srv.state.gaveUp(&s.who)
		s.srv.saveState()
	}
}

func (r *removal) name() string {
	if r.stays {
		return "invalidated"
	}
	return "unregistered"
}

// revalidate maps the memory of a region again.
func (s *session) revalidate(m *message) error {
	var r ring.Revalidate
	rest, err := ring.Decode(m.body, &r, "revalidate")
	if err != nil {
		return invalid("%v", err)
	}
	id := layout.RegionID(r.Region)
	switch {
	case len(rest) != 0:
		return invalid("revalidate: %d bytes too many", len(rest))
	case len(m.fds) != 1:
		return invalid("revalidate: came with %d descriptors: must be one", len(m.fds))
	}
	if pending := s.thinkAgain(id); pending != nil {
		return refuse(transfer.Busy, "region %#x is being %s: its operations are ending", r.Region, pending.name())
	}
	if err := s.mem.Occupy(id, m.fds[0]); err != nil {
		return err
	}
	s.srv.cfg.Events(transfer.RegionRevalidated{Session: s.id, Region: id})
	return nil
}

// thinkAgain forgets an invalidation that is drained but for which no request waits any more. It returns a removal that
// cannot be forgotten, or nil.
func (s *session) thinkAgain(id layout.RegionID) *removal {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.removals[id]
	if r != nil && r.stays && r.drained && !r.waiting {
		delete(s.removals, id)
		return nil
	}
	return r
}

// finishRemoval unmaps and answers, in a goroutine: unmapping a large region takes a while, and the region is being
// taken back until then. The caller holds mu.
func (s *session) finishRemoval(id layout.RegionID, r *removal) {
	if r.timer != nil {
		r.timer.Stop()
	}
	stays := r.stays
	s.jobs.Go(func() {
		var err error
		if stays {
			err = s.mem.Vacate(id)
		} else {
			err = s.mem.Remove(id)
		}
		s.mu.Lock()
		if stays && !r.stays { // meanwhile it is to be unregistered
			s.mu.Unlock()
			err = s.mem.Remove(id)
			s.mu.Lock()
		}
		seq := r.seq
		delete(s.removals, id)
		s.mu.Unlock()
		_ = s.ack(seq, 0, causeOf(err))
	})
}

func (s *session) removalTimedOut(id layout.RegionID, r *removal, seq uint32, wait time.Duration) {
	s.mu.Lock()
	if s.removals[id] != r || !r.waiting || r.seq != seq || r.drained {
		s.mu.Unlock()
		return
	}
	r.waiting = false
	s.jobs.Add(1)
	s.mu.Unlock()
	defer s.jobs.Done()
	_ = s.ack(seq, 0, transfer.Cause{Reason: transfer.Timeout,
		Text: "region is still in use after " + wait.String() + ": its operations are ending, ask again"})
}

// forgetRemovals drops all requests and their timers. The session has ended.
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

// RegionDrained says that nothing touches the region any more. If a request waits, the region is unmapped now and the
// request answered; otherwise the next request does that.
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
