package session

import (
	"time"

	"github.com/kvpipe/kvpipe/daemon/memory"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Info describes a session to people.
type Info struct {
	ID       transfer.SessionID
	Engine   string
	Instance string
	Owner    string // uid and cgroup
	Role     transfer.Role
	Rank     uint32 // transfer.NoRank for schedulers
	TPWorld  uint32
	PPWorld  uint32
	PID      int // 0: not visible from here
	UID      uint32
	Library  string // version
	Age      time.Duration
	Ending   bool // closed, and waiting for its fence
	Pinned   uint64
	Regions  []memory.Info
	Open     int    // operations not released
	Inflight int    // the most that Open may be
	Progress uint64 // furthest seen, while it was waited for
	SQHead   uint32 // submissions read, modulo 2^32
	CQTail   uint32 // completions written, modulo 2^32
	Unread   uint32 // completions that are not consumed
	CQ       uint32 // the most that Unread and the completions reserved by the machine may be together

	Submissions, Refusals, Completions uint64
	Wakeups                            uint64 // times the reader was woken
	Rings                              uint64 // times the client was woken
	Control                            uint64 // control messages
}

// Sessions describes all sessions, in the order in which they were opened.
func (v *Server) Sessions() []Info {
	var all []Info
	for _, s := range v.all() {
		all = append(all, s.info())
	}
	return all
}

// Usage is what clients use of the limits that apply to all of them together.
type Usage struct {
	Limits   Limits
	Sessions int
	OneUser  int    // sessions of the user that has most
	Pinned   uint64 // bytes registered by all
	Rings    uint64 // bytes that the rings of all sessions may take
}

// Usage returns what is used.
func (v *Server) Usage() Usage {
	pinned := v.pool.Bytes()
	v.mu.Lock()
	defer v.mu.Unlock()
	u := Usage{Limits: v.limits, Sessions: v.total, Pinned: pinned, Rings: v.rings.used()}
	for _, n := range v.perUID {
		u.OneUser = max(u.OneUser, n)
	}
	return u
}

// Pinned returns how many bytes all sessions have registered.
func (v *Server) Pinned() uint64 { return v.pool.Bytes() }

func (s *session) info() Info {
	i := Info{
		ID: s.id, Engine: s.who.Engine, Instance: s.who.Instance, Owner: s.who.Owner, Role: s.who.Role, Rank: s.who.Rank,
		TPWorld: s.who.TPWorld, PPWorld: s.who.PPWorld, PID: s.who.PID, UID: s.who.UID, Library: s.who.Library, Age: time.Since(s.since),
		Pinned: s.mem.Used(), Regions: s.mem.Regions(), Inflight: s.inflight, CQ: s.reserve,
		Submissions: s.count.submissions.Load(), Refusals: s.count.refusals.Load(), Completions: s.count.completions.Load(),
		Wakeups: s.count.wakeups.Load(), Rings: s.count.rings.Load(), Control: s.count.control.Load(),
	}
	select {
	case <-s.ending:
		i.Ending = true
	default:
	}
	s.in.Lock()
	i.SQHead = s.sq.Head()
	s.in.Unlock()
	s.mu.Lock()
	if !s.gone {
		s.collect(s.srv.cfg.Events)
	}
	i.Open, i.Progress, i.CQTail, i.Unread = len(s.ops), s.progress, s.cq.Tail(), s.cq.Outstanding()
	s.mu.Unlock()
	return i
}
