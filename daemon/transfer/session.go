package transfer

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// session is one connection of a process to this daemon.
type session struct {
	id       SessionID
	engine   *engine
	user     uint32
	role     Role
	rank     uint32
	self     [1]*session
	asRank   [1]RankLayout // of a worker with a layout
	layout   *layout.Layout
	holds    *layout.Holds
	progress uint64
	watch    uint64 // what WatchProgress asked for last
	waits    []progressWait
	ring     int        // completions that its ring has room for
	credits  int        // free ones: neither reserved nor used by completions that are not collected
	reserved int        // for operations that are not released
	owed     []Complete // answers for which there was no credit
	ops      map[uint64]*op
	uses     map[*op]struct{} // operations that this session is told about, but for its items without bytes
	bind     *bind            // an end's
	legs     int              // legs that may touch its memory
	used     [numQuotas]int
	delayed  delayedSubmits
	resumed  bool              // its client had it before, and has proved that
	brought  bool              // a scheduler's that came back: it has said that it has brought all along
	changed  bool              // a scheduler's: what it submitted earlier may be about other ranks
	awaited  *AwaitedSession   // what it was awaited as after a restart
	lingers  *home             // the home that outlives it
	orphans  []*offer          // offers that outlive it and lie in its memory
	reads    int               // legs that may read orphans that have not ended
	behind   int               // what counts of it among estates
	orphaned bool              // SessionOrphaned has said what of its memory has to stay
	gone     []layout.RegionID // removed regions
	invalid  []layout.RegionID // regions without memory, until they are revalidated; once there is a layout, only those that it names
	draining []layout.RegionID // regions of both kinds whose memory may still be touched
	left     bool              // something about ranks was left to the next daemon
	ended    *Cause            // why it was told to go
	cut      bool              // a warning said that a lease of it was cut
	closed   bool
	died     bool // closed, because its process is gone
}

// alive is false once nothing may be sent to the session.
func (s *session) alive() bool { return !s.closed }

func (m *Machine) layoutSet(ev LayoutSet) {
	if s := m.sessions[ev.Session]; s != nil && s.layout == nil {
		s.layout = ev.Layout
		s.holds = layout.NewHolds(ev.Layout)
		s.asRank[0] = RankLayout{Rank: s.rank, Session: s.id, Layout: s.layout}
		s.invalid = slices.DeleteFunc(s.invalid, func(r layout.RegionID) bool { return !s.names(r) })
		if cause := s.valid(); cause.Reason != OK { // it comes back without its memory
			m.home.abandonMemory(m, s, cause)
		}
		m.home.arrived(m, s, true)
	}
}

// sessionClosed ends what the session asked for and what touches its memory.
func (m *Machine) sessionClosed(ev SessionClosed) {
	s := m.sessions[ev.Session]
	if s == nil || s.closed {
		return
	}
	if ev.Died {
		m.progress(Progress{Session: s.id, Value: ev.Progress})
	}
	s.closed, s.died = true, ev.Died
	m.frozen = m.frozen || m.stopping && ev.Cause.Reason == Unavailable
	s.waits, s.owed = nil, nil
	m.home.forget(m, s)
	m.home.left(m, s, ev.Cause)
	m.abandon(s, ev.Cause)
	m.leaveEngine(s)
	m.drained(s)
}

// abandon ends every operation that concerns the session.
func (m *Machine) abandon(s *session, cause Cause) {
	for _, o := range s.concerned() {
		o.owner.lost(m, o, s, cause)
	}
}

// concerned lists the operations that concern the session, in the order in which they were accepted.
func (s *session) concerned() []*op {
	ops := make([]numbered[*op], 0, len(s.uses))
	for o := range s.uses {
		ops = append(ops, numbered[*op]{uint64(o.id), o})
	}
	if s.role == Endpoint {
		for _, o := range s.ops {
			if _, listed := s.uses[o]; !listed {
				ops = append(ops, numbered[*op]{uint64(o.id), o})
			}
		}
	}
	return inOrder(ops)
}

// regionRemoved ends the session's operations if its layout names the region: all of them may lie in it.
func (m *Machine) regionRemoved(ev RegionRemoved) {
	s := m.sessions[ev.Session]
	if s == nil || s.closed || slices.Contains(s.gone, ev.Region) {
		return
	}
	s.forgetInvalid(ev.Region)
	if !s.names(ev.Region) {
		m.emit(RegionDrained{Session: s.id, Region: ev.Region})
		return
	}
	s.gone = append(s.gone, ev.Region)
	s.drain(ev.Region)
	m.abandonMemory(s, because(NotFound, "region %#x was unregistered while the operation used it", uint64(ev.Region)))
	m.drained(s)
}

// abandonMemory ends every operation that uses the session's memory; those that only report to it go on. A client may have
// that done again and again, so it does not look at items without bytes, of which a session may have any number.
func (m *Machine) abandonMemory(s *session, cause Cause) {
	var ops []numbered[*op]
	for o := range s.uses {
		if slices.ContainsFunc(o.held, func(h hold) bool { return h.s == s }) {
			ops = append(ops, numbered[*op]{uint64(o.id), o})
		}
	}
	for _, o := range inOrder(ops) {
		o.owner.lost(m, o, s, cause)
	}
}

// drained says SessionDrained or RegionDrained once nothing touches memory that was asked back.
func (m *Machine) drained(s *session) {
	switch {
	case s.closed && s.lingers != nil:
		m.leftBehind(s)
		return
	case s.closed && len(s.orphans) > 0:
		m.orphan(s)
		return
	case s.legs > 0:
		return
	case s.closed:
		if m.sessions[s.id] == s {
			delete(m.sessions, s.id)
			m.emit(SessionDrained{Session: s.id})
		}
		return
	}
	keep := s.draining[:0]
	for _, r := range s.draining {
		if m.mayComeAgain(s) && slices.Contains(s.invalid, r) {
			keep = append(keep, r)
			continue
		}
		m.emit(RegionDrained{Session: s.id, Region: r})
	}
	s.draining = keep
}

// endSession tells a session to go; its operations end now.
func (m *Machine) endSession(s *session, cause Cause) {
	if s.ended != nil || s.closed {
		return
	}
	s.ended = &cause
	m.emit(EndSession{Session: s.id, Cause: cause})
	m.abandon(s, cause)
}

// overWithDaemon says whether an operation ended with the daemon before this one. It begins nothing: only its ranks have
// to hear of it still.
func overWithDaemon(in Op) bool {
	take, ok := in.(*TakeOp)
	return ok && take.Restarted
}

// usable says whether the session may begin an operation.
func (m *Machine) usable(s *session, in Op) (Cause, bool) {
	_, put := in.(*PutOp)
	switch {
	case s.ended != nil:
		return *s.ended, false
	case m.stopping && put:
		return because(Restarted, "the daemon of node %q is about to end, and so are its pipes and lookup buffers; open them again", m.cfg.Node), false
	case m.draining && !overWithDaemon(in):
		return because(Unavailable, "the daemon of node %q is draining; submit again after its restart", m.cfg.Node), false
	}
	counts := quotaOps
	if put { // an item; a lookup buffer may hold many more of those
		counts = quotaItems
	}
	c := m.within(s, counts, 1)
	if c.Reason == OK {
		c = m.within(s, quotaBlockIDs, idsOf(in))
	}
	return c, c.Reason == OK
}
