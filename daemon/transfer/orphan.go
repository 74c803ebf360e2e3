package transfer

import (
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// A finished prefill is worth more than the engine that made it. So an offer that is sealed, and whose blocks were all
// written, stays takeable for a while after a process that it concerns has died. What it holds in the dead process's
// memory cannot change any more. It ends when it is consumed or dropped, when its lease or OrphanLease is over, or when
// a new instance offers under its key. Only death makes orphans: closing a session withdraws its offers, and a process
// that was told to go may still be writing.

// survives says whether the offer may go on without a session that is gone. What it leaves behind then counts.
func (mb *member) survives(m *Machine, s *session) bool {
	if !mb.mayOutlive(m, s) {
		return false
	}
	own, of := mb.estate(s)
	if !m.estates.room(s.testator(), own+of, maxEstate) {
		m.log(infoLevel, "a finished offer ends with its engine: this user and cgroup, or user, has left too much behind", "engine", s.engine.key.name, "instance", s.engine.instance,
			"rank", rankName(s), "key", short(mb.offer.key))
		return false
	}
	mb.left, s.behind = mb.left+own, s.behind+of
	m.estates.add(s.testator(), own+of)
	return true
}

func (mb *member) mayOutlive(m *Machine, s *session) bool {
	if !s.died || m.cfg.OrphanLease <= 0 || mb.offer.ended || !mb.offer.sealed() {
		return false
	}
	if s == mb.by && s.succeeded() && slices.ContainsFunc(mb.ranks, (*session).alive) && !m.cfg.Broken.Heir {
		return false
	}
	return !slices.Contains(mb.ranks, s) || mb.finished(s) || m.cfg.Broken.Unfinished
}

// finished says whether a rank has written all that this operation offers of it.
func (mb *member) finished(s *session) bool {
	for i := range mb.segs {
		p := &mb.segs[i]
		after := p.after
		if p.layered {
			after = p.layer(len(s.layout.Layers()) - 1)
		}
		if s.progress < after {
			return false
		}
	}
	return true
}

// outlive keeps the offer after the death of a session concerned, until OrphanLease after the first such death at most.
func (o *offer) outlive(m *Machine, s *session) {
	if !o.orphaned {
		o.orphaned, o.outlives = true, m.now+m.cfg.OrphanLease
		if o.engine.outlived == nil {
			o.engine.outlived = map[*offer]struct{}{}
		}
		o.engine.outlived[o] = struct{}{}
		if o.expires > o.outlives {
			o.expires = o.outlives
			m.arm(&o.expiry, o, wakeExpiry, o.expires)
		}
	}
	if slices.Contains(o.ranks, s) && !slices.Contains(o.dead, s) {
		s.orphans = append(s.orphans, o)
		s.reads += o.open
		o.dead = append(o.dead, s)
	}
}

// orphan says, once, what has to stay of a dead session's memory: as soon as only takes of what outlives it touch it. It
// is called after each transfer that ends there, so it does not look at the offers before or after that.
func (m *Machine) orphan(s *session) {
	if s.orphaned || s.legs > s.reads {
		return
	}
	var keep [][]layout.BlockList
	for _, o := range s.orphans {
		if o.ended {
			continue
		}
		for _, mb := range o.members {
			if slices.Contains(mb.ranks, s) {
				for i := range mb.segs {
					keep = append(keep, mb.segs[i].blocks)
				}
			}
		}
	}
	if keep == nil {
		return
	}
	s.orphaned = true
	m.log(infoLevel, "finished offers outlive their engine", "engine", s.engine.key.name, "instance", s.engine.instance, "rank", rankName(s),
		"offers", len(s.orphans), "for", duration(m.cfg.OrphanLease))
	m.emit(SessionOrphaned{Session: s.id, Layout: s.layout, Keep: keep})
}

// bereave lets go of the memory of dead sessions in which a member's blocks lay, once nobody reads them any more.
func (m *Machine) bereave(mb *member) {
	if !mb.offer.orphaned {
		return
	}
	for _, s := range mb.ranks {
		if i := slices.Index(s.orphans, mb.offer); i >= 0 {
			s.orphans = slices.Delete(s.orphans, i, i+1)
			if len(s.orphans) == 0 {
				m.estates.add(s.testator(), -s.behind)
				s.behind = 0
			}
			m.drained(s)
		}
	}
}

// heirless returns the offer if it outlives an engine that has the name of the session's, and is not the session's own:
// then its key is free for a new offer. Otherwise it returns nil.
func (o *offer) heirless(s *session) *offer {
	if o == nil || !o.orphaned || o.engine.key.name != s.engine.key.name {
		return nil
	}
	if slices.ContainsFunc(o.members, func(mb *member) bool { return mb.by == s }) {
		return nil
	}
	return o
}

// succeeded says whether another scheduler has come since. It may come before the news of this one's death.
func (s *session) succeeded() bool {
	i := slices.Index(s.engine.scheds, s)
	return i >= 0 && slices.ContainsFunc(s.engine.scheds[i+1:], func(x *session) bool { return x.ended == nil })
}

// succeed ends what a dead scheduler of the engine had offered of workers that live: the next scheduler gives their
// blocks to others.
func (m *Machine) succeed(e *engine) {
	var old []*offer
	for o := range e.outlived {
		by := o.members[0].by
		if by.role == Scheduler && by.closed && slices.ContainsFunc(o.ranks, (*session).alive) {
			old = append(old, o)
		}
	}
	slices.SortFunc(old, func(a, b *offer) int { return cmp.Compare(a.incarnation, b.incarnation) })
	for _, o := range old {
		o.end(m, Failed, because(Expired, "key %s: the scheduler of engine %q died and has a successor", short(o.key), e.key.name), "ended with its scheduler")
	}
}
