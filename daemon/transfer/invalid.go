package transfer

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// An engine that sleeps gives its memory up and means to come back. What lies in the region ends as if the region were
// removed. But its name and the layout stay, so nothing has to be said again once there is memory behind them.

func (m *Machine) regionInvalidated(ev RegionInvalidated) {
	s := m.sessions[ev.Session]
	if s == nil || s.closed || slices.Contains(s.gone, ev.Region) {
		return
	}
	named := s.names(ev.Region)
	if named || s.layout == nil { // else no operation is about it
		if !slices.Contains(s.invalid, ev.Region) {
			s.invalid = append(s.invalid, ev.Region)
		}
		s.engine.gaveUp = true
	}
	if !named || m.cfg.Broken.Asleep {
		m.emit(RegionDrained{Session: s.id, Region: ev.Region})
		return
	}
	s.drain(ev.Region)
	cause := because(Unavailable, "region %#x was invalidated while the operation used it", uint64(ev.Region))
	m.abandonMemory(s, cause)
	m.home.abandonMemory(m, s, cause)
	m.drained(s)
}

// mayComeAgain says whether the next daemon is sent operations on the session's blocks that this one, which is about to
// end, has left to it, or whose end it does not report. Their memory is not given back here: if it was there again by
// then, they would go on with what it holds. The client asks the next daemon, to which it has sent them before.
func (m *Machine) mayComeAgain(s *session) bool {
	return m.frozen || s.left || slices.ContainsFunc(s.engine.scheds, func(x *session) bool { return x.left })
}

func (m *Machine) regionRevalidated(ev RegionRevalidated) {
	if s := m.sessions[ev.Session]; s != nil {
		s.forgetInvalid(ev.Region)
	}
}

func (s *session) forgetInvalid(r layout.RegionID) {
	s.invalid = slices.DeleteFunc(s.invalid, func(x layout.RegionID) bool { return x == r })
}

// names says whether the session's layout names the region.
func (s *session) names(r layout.RegionID) bool {
	return s.layout != nil && slices.ContainsFunc(s.layout.Views(), func(v layout.View) bool { return v.Region == r })
}

// drain sees to it that RegionDrained follows, once.
func (s *session) drain(r layout.RegionID) {
	if !slices.Contains(s.draining, r) {
		s.draining = append(s.draining, r)
	}
}

// asleep says whether operations that this session submits need memory that is away.
func (s *session) asleep() bool {
	if s.role != Scheduler {
		return s.valid().Reason != OK
	}
	return slices.ContainsFunc(s.engine.workers, func(w *session) bool { return w.ended == nil && w.valid().Reason != OK })
}

// valid refuses operations while a region of the layout has no memory. It is asked at each of them, so it does not look
// through the layout.
func (s *session) valid() Cause {
	if s.layout == nil || len(s.invalid) == 0 {
		return Cause{}
	}
	return because(Unavailable, "region %#x of the layout of rank %d is invalid: its engine has given its memory up; revalidate it first", uint64(s.invalid[0]), s.rank)
}
