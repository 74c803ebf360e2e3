package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// submitExtend adds blocks to an offer of this session, seals it, or both. It is done as soon as it is accepted.
func (m *Machine) submitExtend(s *session, sub *Submit, in *ExtendOp) {
	mb, cause := extendable(s, in)
	if cause.Reason == OK {
		cause = m.checkBlocks(mb.ranks, in.Blocks)
	}
	if cause.Reason == OK {
		cause = mb.continues(in.Blocks)
	}
	if cause.Reason == OK && len(in.Blocks) > 0 && len(mb.segs) >= maxSegs {
		cause = because(Quota, "extend: the offer of key %s was made and extended in %d pieces, the limit is %d: extend it by more blocks at once, or seal it without blocks",
			short(mb.offer.key), len(mb.segs), maxSegs)
	}
	if cause.Reason == OK {
		cause = mb.offer.carries(len(mb.segs), in.Blocks)
	}
	if cause.Reason == OK && !m.cfg.Broken.Step {
		cause = mb.offer.inStep(mb.ranks, len(mb.segs), in.Blocks)
	}
	ids := idsOf(in)
	if cause.Reason == OK {
		cause = m.within(s, quotaBlockIDs, ids)
	}
	if cause.Reason == OK && s.ended != nil {
		cause = *s.ended
	}
	if cause.Reason == OK {
		cause = m.acquire(&mb.op, mb.ranks, in.Blocks)
	}
	if cause.Reason != OK {
		m.refuse(s, sub, cause)
		return
	}
	mb.countIDs(ids)
	if len(in.Blocks) > 0 || in.Sealed && len(mb.segs) == 0 {
		mb.add(in.Blocks, in.After, in.Layered)
	}
	mb.sealed = in.Sealed
	m.answer(s, sub)
	mb.offer.renew(m)
	if len(in.Blocks) > 0 || in.Sealed { // else nobody who waits needs a look: it may be said again and again, and thousands may wait
		mb.offer.grown(m)
	}
}

func extendable(s *session, in *ExtendOp) (*member, Cause) {
	o := s.ops[in.Target]
	if o == nil {
		return nil, because(NotFound, "no offer of this session has the user_data %#x: it ended, or never was", in.Target)
	}
	mb, ok := o.owner.(*member)
	switch {
	case !ok:
		return nil, because(Invalid, "the operation %#x is not an offer; only offers can be extended", in.Target)
	case o.stage != stageRunning:
		return nil, because(Expired, "the offer of key %s has ended: %s", short(mb.offer.key), o.cause.Text)
	case mb.sealed:
		return nil, because(Invalid, "the offer of key %s is sealed; nothing can be added", short(mb.offer.key))
	}
	return mb, Cause{}
}

// continues checks that paged lists begin where the offer ends, and that an opaque group gets blocks only once: those
// of two lists would go to the same blocks of a take, in no order.
func (mb *member) continues(lists []layout.BlockList) Cause {
	for _, b := range lists {
		end, began := mb.ends[b.Group]
		switch {
		case !began:
		case mb.opaque(b.Group):
			if len(b.IDs) > 0 {
				return because(Invalid, "extend: group %d is opaque, and the offer of key %s has its blocks already; give them once, with the piece after which they are final, and leave the group out of the others",
					b.Group, short(mb.offer.key))
			}
		case b.FirstToken != end:
			return because(Invalid, "extend: group %d begins at token %d, but the offer of key %s ends at %d; begin there",
				b.Group, b.FirstToken, short(mb.offer.key), end)
		}
	}
	return Cause{}
}

func (mb *member) opaque(group uint32) bool { return isOpaque(mb.ranks, group) }

func isOpaque(ranks []*session, group uint32) bool {
	for _, s := range ranks {
		if g := s.layout.Group(group); g != nil {
			return g.Kind == layout.Opaque
		}
	}
	return false
}

// grown moves on the takes that wait for what was just added.
func (o *offer) grown(m *Machine) {
	if o.ended {
		return
	}
	if o.sealed() && !o.even() {
		o.end(m, Failed, because(Invalid, "key %s: its ranks sealed it after different numbers of extensions; extend on every rank alike", short(o.key)), "failed")
		return
	}
	for _, v := range append([]*serve(nil), o.serves...) {
		v.advance(m)
	}
	m.wakeKey(o.key)
}

func (o *offer) even() bool {
	for _, mb := range o.members {
		if len(mb.segs) != len(o.members[0].segs) {
			return false
		}
	}
	return true
}
