package transfer

import (
	"cmp"
	"fmt"
	"slices"
)

// engine is one instance of a serving engine, as far as it lives on this node.
type engine struct {
	key      engineKey
	instance string
	workers  []*session // ascending rank; only those with a layout take part in operations
	scheds   []*session
	had      []uint32 // ranks that it has or had on this node, also before a restart
	world    uint32   // ranks of the engine on all nodes
	gaveUp   bool     // one of its ranks has given memory up here
	fenced   *Cause
	outlived map[*offer]struct{} // offers that outlive a session of it
}

type engineKey struct{ name, owner string }

// lineage is the live instance of an engine, and the names of those before it.
type lineage struct {
	live *engine
	old  []string
}

const maxOld = 16

// sessionOpened finds the session's engine. A new instance fences older ones of the same engine and owner. A session
// that names no instance joins the live one.
func (m *Machine) sessionOpened(ev *SessionOpened) {
	s := &session{
		id: ev.Session, user: ev.User, role: ev.Role, rank: ev.Rank, ring: ev.Credits, credits: ev.Credits, resumed: ev.Resumed, changed: ev.Changed,
		ops: map[uint64]*op{}, uses: map[*op]struct{}{},
	}
	s.self[0] = s
	m.sessions[s.id] = s
	key := engineKey{ev.Engine, ev.Owner}
	if ev.Role == Endpoint { // it belongs to no instance: it replaces nobody, and nobody replaces it
		s.engine = &engine{key: key, instance: ev.Instance, workers: []*session{s}, world: 1}
		return
	}
	l := m.engines[key]
	if l == nil {
		l = &lineage{}
		m.engines[key] = l
	}
	switch {
	case ev.Instance != "" && slices.Contains(l.old, ev.Instance) && (l.live == nil || l.live.instance != ev.Instance):
		s.engine = &engine{key: key, instance: ev.Instance}
		m.endSession(s, because(Closed, "instance %q of engine %q was replaced by a newer one; stop this process", ev.Instance, ev.Engine))
		return
	case l.live == nil:
		l.live = m.newEngine(key, ev.Instance)
	case ev.Instance != "" && l.live.instance != ev.Instance:
		old := l.live
		l.live = m.newEngine(key, ev.Instance)
		l.old = append(l.old, old.instance)
		if len(l.old) > maxOld {
			l.old = l.old[1:]
		}
		m.fenceEngine(old, ev.Instance)
	}
	e := l.live
	s.engine = e
	e.knows(ev.Had...)
	if ev.Role == Scheduler {
		m.succeed(e)
		e.scheds = append(e.scheds, s)
		m.home.arrived(m, s, true)
		return
	}
	e.world = max(e.world, max(ev.TPWorld, 1)*max(ev.PPWorld, 1))
	e.workers = append(e.workers, s)
	e.sortWorkers()
	e.knows(s.rank)
	if !s.resumed && !m.cfg.Broken.Successor {
		m.home.another(e)
	}
	for _, w := range e.workers {
		if w.rank == s.rank && w != s { // whoever opened this session knows that the older one is over
			m.endSession(w, because(Closed, "rank %d of instance %q of engine %q has a newer session", s.rank, e.instance, ev.Engine))
		}
	}
	m.home.arrived(m, s, false)
}

func (m *Machine) newEngine(key engineKey, instance string) *engine {
	if instance == "" {
		instance = fmt.Sprintf("auto-%016x", m.cfg.Random())
	}
	return &engine{key: key, instance: instance}
}

// MaxHad bounds the ranks remembered of an instance, whose workers may come and go under ever other numbers: each
// operation looks for all of them. If an instance has or had more, no operation is about all of them.
const MaxHad = MaxRanks + 1

// knows notes ranks that the engine has here, or had.
func (e *engine) knows(ranks ...uint32) {
	for _, r := range ranks {
		if len(e.had) < MaxHad && !slices.Contains(e.had, r) {
			e.had = append(e.had, r)
		}
	}
}

func (e *engine) sortWorkers() {
	slices.SortFunc(e.workers, func(a, b *session) int { return cmp.Compare(a.rank, b.rank) })
}

// fenceEngine ends the sessions of an instance that was replaced.
func (m *Machine) fenceEngine(e *engine, by string) {
	cause := because(Closed, "instance %q of engine %q was replaced by instance %q", e.instance, e.key.name, by)
	e.fenced = &cause
	m.log(infoLevel, "engine instance replaced", "engine", e.key.name, "old", e.instance, "new", by)
	for _, s := range slices.Concat(e.scheds, e.workers) {
		m.endSession(s, cause)
	}
}

func (m *Machine) leaveEngine(s *session) {
	e := s.engine
	is := func(x *session) bool { return x == s }
	e.workers = slices.DeleteFunc(e.workers, is)
	e.scheds = slices.DeleteFunc(e.scheds, is)
	if l := m.engines[e.key]; l != nil && l.live == e && len(e.workers)+len(e.scheds) == 0 {
		delete(m.engines, e.key)
	}
}

// absent lists the ranks that the engine had here and no longer has. Work that it does without them would pass for that
// of an engine whose other ranks are on other nodes.
func (e *engine) absent() (gone []uint32) {
	for _, r := range e.had {
		if !slices.ContainsFunc(e.workers, func(w *session) bool { return w.rank == r && w.ended == nil }) {
			gone = append(gone, r)
		}
	}
	return gone
}

// MaxRanks bounds the ranks of one end of a transfer.
const MaxRanks = 1024

// ranks returns the sessions whose memory an operation of s names: a worker's own, or those of all workers that a
// scheduler's engine has here.
func (m *Machine) ranks(s *session) ([]*session, Cause) {
	if s.role != Scheduler {
		if s.layout == nil {
			return nil, because(Invalid, "the session has no layout: set it before the first operation")
		}
		return s.self[:1:1], m.regionsThere(s)
	}
	if gone := s.engine.absent(); gone != nil && !m.cfg.Broken.Absent {
		return nil, because(Unavailable, "rank %d of engine %q has left node %q; wait for its next session, or start a new instance", gone[0], s.engine.key.name, m.cfg.Node)
	}
	if n := len(s.engine.workers); n > MaxRanks {
		return nil, because(Quota, "engine %q has %d ranks on node %q, an operation of its scheduler is about %d at most; have the ranks offer and take for themselves",
			s.engine.key.name, n, m.cfg.Node, MaxRanks)
	}
	ranks := make([]*session, 0, len(s.engine.workers))
	for _, w := range s.engine.workers {
		if w.ended != nil {
			continue
		}
		if w.layout == nil {
			return nil, because(Unavailable, "rank %d of engine %q has not set its layout yet; wait for that", w.rank, s.engine.key.name)
		}
		if c := m.regionsThere(w); c.Reason != OK {
			return nil, c
		}
		ranks = append(ranks, w)
	}
	if len(ranks) == 0 {
		return nil, because(Unavailable, "engine %q has no worker on node %q: open the workers' sessions first", s.engine.key.name, m.cfg.Node)
	}
	return ranks, Cause{}
}

func (m *Machine) regionsThere(s *session) Cause {
	if len(s.gone) == 0 {
		return s.valid()
	}
	return because(NotFound, "region %#x of the layout of rank %d is gone: it was unregistered; open a new session with a layout of memory that is there", uint64(s.gone[0]), s.rank)
}
