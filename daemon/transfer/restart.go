package transfer

import (
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// A daemon that was restarted knows from its state file who had sessions. Until they are back, it does not judge by
// what it sees: takes of unknown keys wait, and a scheduler's operations wait for the ranks that they are about.

// AwaitedSession is a session of the daemon before this one.
type AwaitedSession struct {
	Engine, Instance, Owner string
	Role                    Role
	Rank                    uint32
	Layout                  bool // it had set one
}

// Awaited says that these sessions are expected to come back within For. It comes once, before any session opens.
type Awaited struct {
	Sessions []AwaitedSession
	For      Time
}

func (Awaited) event() {}

// homecoming is what the machine still waits for.
type homecoming struct {
	sessions []AwaitedSession
	limit    Time // nobody is awaited after this time
	until    Time // takes wait for unknown keys until this time
	end      timer
	waiting  []*session     // sessions that have submissions waiting, in the order in which they began to wait
	offered  map[string]int // how many offers wait, by key
}

// afterHome is how long offers may take to come in once the last session is back.
const afterHome = Second

func (m *Machine) await(ev Awaited) {
	if len(ev.Sessions) == 0 {
		return
	}
	h := &m.home
	h.sessions, h.limit, h.until = ev.Sessions, m.now+ev.For, m.now+ev.For
	m.arm(&h.end, h, wakeDeadline, h.until)
}

// stillness is by how much a timer is late only where the node stood still.
const stillness = Second / 100

// fire gives up on whoever is not back by now. What waited for it is about a rank that is not there. Where the node stood
// still, it has not heard of those who said HELLO meanwhile: they are awaited for so long again.
func (h *homecoming) fire(m *Machine, _ wake) {
	if late := m.now - h.until; late > stillness && len(h.sessions) > 0 {
		h.until += late + late
		h.limit = max(h.limit, h.until)
		m.arm(&h.end, h, wakeDeadline, h.until)
		return
	}
	for _, a := range h.sessions {
		m.log(warnLevel, "session of before the restart did not come back", "engine", a.Engine, "instance", a.Instance, "rank", int32(a.Rank))
		if l := m.engines[engineKey{a.Engine, a.Owner}]; l != nil && l.live != nil && l.live.instance == a.Instance && a.Role == Worker {
			l.live.knows(a.Rank)
		}
	}
	h.sessions = nil
	m.allHome()
}

// patient is true while offers may be on their way back.
func (h *homecoming) patient(now Time) bool { return now < h.until }

// arrived strikes out a session that is back; a newer instance strikes out all sessions of older ones. withLayout: a
// session that had a layout has set it again. Ends of pipes were not awaited, and are of no instance, whatever their
// engine's name. A session that was told to go is not back either.
func (h *homecoming) arrived(m *Machine, s *session, withLayout bool) {
	if s.role == Endpoint || s.ended != nil {
		return
	}
	found, before := false, len(h.sessions)
	h.sessions = slices.DeleteFunc(h.sessions, func(a AwaitedSession) bool {
		switch {
		case a.Engine != s.engine.key.name || a.Owner != s.engine.key.owner:
			return false
		case a.Instance != s.engine.instance:
			return true
		case found || a.Role != s.role || a.Rank != s.rank || a.Layout && !withLayout:
			return false
		}
		found, s.awaited = true, &a // of several schedulers only one
		return true
	})
	if len(h.sessions) == before {
		return
	}
	if len(h.sessions) == 0 {
		h.until = min(h.until, m.now+afterHome)
		m.arm(&h.end, h, wakeDeadline, h.until)
	}
	m.allHome()
}

// another handles a new worker, of which nothing was ever asked. What schedulers of the engine submitted before it came
// is about other ranks: if its rank is awaited, about the session that it replaces.
func (h *homecoming) another(e *engine) {
	for _, s := range e.scheds {
		s.changed = true
		for _, x := range s.delayed.list {
			OfBefore(x.sub.Op)
		}
	}
}

// OfBefore marks an offer or a take as submitted before one of the present workers came, as if its client had said that
// it sends it again.
func OfBefore(op Op) {
	switch in := op.(type) {
	case *OfferOp:
		in.Again = true
	case *TakeOp:
		in.Again = true
	}
}

// outdated says why what a scheduler submitted before may be about other ranks than those that are here, whose own its
// block ids would be read as, or about what their memory held before they gave it up.
func (m *Machine) outdated(s *session, op Op) Cause {
	again := false
	switch in := op.(type) {
	case *OfferOp:
		again = in.Again
	case *TakeOp:
		again = in.Again && !in.Restarted // such a take is only reported
	}
	switch {
	case !again || s.role != Scheduler || m.cfg.Broken.Outdated:
		return Cause{}
	case s.engine.gaveUp: // what ended then was all that the daemon had, and this it had not
		return because(Restarted, "a rank of engine %q on node %q has given memory up, perhaps since this was submitted; submit it again for what the memory holds now", s.engine.key.name, m.cfg.Node)
	case s.changed:
		return because(Restarted, "engine %q has another session of one of its ranks on node %q than this was about, or one of them has given memory up since; submit it again for what is here",
			s.engine.key.name, m.cfg.Node)
	case !s.resumed: // or it was marked by OfBefore, because of a worker of which the machine has not heard yet
		return because(Restarted, "the daemon of node %q cannot tell which ranks of engine %q this was about: it was restarted since, and did not expect this session any more, or another worker came just as it was read; submit it again for those that are here",
			m.cfg.Node, s.engine.key.name)
	}
	return Cause{}
}

// brings says, once, that a scheduler which came back has brought along all that it had. Its client says of no operation
// that it is new before that. It may have to bring some along to the next daemon, too: what waits here, and what this one,
// which is about to end, leaves to that.
func (m *Machine) brings(s *session, op Op) {
	if !s.resumed || s.role != Scheduler || s.brought || s.delayed.n > 0 || m.stopping || m.frozen {
		return
	}
	switch in := op.(type) {
	case *OfferOp:
		s.brought = !in.Again
	case *TakeOp:
		s.brought = !in.Again && !in.Restarted
	}
	if s.brought {
		m.emit(Brought{Session: s.id})
	}
}

// left handles a session that is over. As a rule nobody else comes in its place. But a session whose process lives, and
// that only lost its connection, comes again: it had said HELLO while nobody was there to answer, and gave up. A
// session that was told to go does not come again.
func (h *homecoming) left(m *Machine, s *session, cause Cause) {
	again := cause.Reason == PeerGone && !s.died
	switch {
	case s.ended != nil:
	case !again && s.awaited == nil:
		h.arrived(m, s, true)
	case again && s.awaited != nil && m.now < h.limit:
		h.sessions = append(h.sessions, *s.awaited)
		h.until = h.limit
		m.arm(&h.end, h, wakeDeadline, h.until)
	}
}

// ranksOut counts the workers of an engine that are not back.
func (h *homecoming) ranksOut(e *engine) int {
	n := 0
	for i := range h.sessions {
		if a := &h.sessions[i]; a.Role == Worker && a.Engine == e.key.name && a.Owner == e.key.owner && a.Instance == e.instance {
			n++
		}
	}
	return n
}

// allHome goes on with what waited for engines whose ranks are complete.
func (m *Machine) allHome() {
	m.home.release(m)
	for _, o := range m.partOffers() {
		o.complete(m)
	}
}

// partOffers lists the offers that lack ranks.
func (m *Machine) partOffers() []*offer {
	var out []*offer
	for _, o := range m.offers {
		if !o.joined {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *offer) int { return cmp.Compare(a.key, b.key) })
	return out
}

// complete looks again whether all ranks are in a workers' offer.
func (o *offer) complete(m *Machine) {
	if !o.joined && len(o.ranks) >= o.expected(m) {
		o.joined = true
		o.grown(m)
	}
}

// restarted is a take that failed with the daemon before this one, and of whose end the ranks have not heard.
type restarted struct {
	op
	blocks []layout.BlockList
}

// tellRestarted reports such a take to all sessions concerned that are here. For each of them it is over, whoever else has left.
func (m *Machine) tellRestarted(s *session, sub *Submit, in *TakeOp) {
	ranks := s.self[:]
	if s.role == Scheduler {
		ranks = slices.DeleteFunc(slices.Clone(s.engine.workers), func(w *session) bool { return w.ended != nil })
	}
	r := &restarted{blocks: in.Blocks}
	if cause := m.begin(&r.op, sub, s, ranks, creditsMemory, r); cause.Reason != OK {
		m.refuse(s, sub, cause)
		return
	}
	m.conclude(&r.op, Failed, because(Restarted, "key %s: the daemon of node %q was restarted while bytes were granted; take it again", short(in.Key), m.cfg.Node))
}

func (r *restarted) cancel(*Machine, *op)                         {}
func (r *restarted) lost(*Machine, *op, *session, Cause)          {}
func (r *restarted) busy() bool                                   { return false }
func (r *restarted) account(*op, *session) (uint64, []layout.Run) { return 0, runsOf(r.blocks) }
func (r *restarted) freed(*Machine, *op)                          {}
