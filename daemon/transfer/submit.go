package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// submit dispatches an operation.
func (m *Machine) submit(sub *Submit) {
	s := m.sessions[sub.Session]
	if s == nil || s.closed || m.home.delay(m, s, sub) || m.leavesToNext(s, sub.Op) {
		return
	}
	switch in := sub.Op.(type) {
	case *CancelOp:
		m.submitCancel(s, sub, in.Target)
		return
	case *WithdrawOp:
		m.submitCancel(s, sub, in.Target)
		return
	case *SealOp:
		if o := s.ops[in.Target]; o != nil {
			if b, ok := o.owner.(*bind); ok {
				m.sealHome(s, sub, b)
				return
			}
		}
		m.submitExtend(s, sub, &ExtendOp{Target: in.Target, Sealed: true})
		return
	case *ExtendOp:
		m.submitExtend(s, sub, in)
		return
	}
	if cause, ok := m.usable(s, sub.Op); !ok {
		m.refuse(s, sub, cause)
		return
	}
	if cause := m.outdated(s, sub.Op); cause.Reason != OK {
		m.refuse(s, sub, cause)
		return
	}
	m.brings(s, sub.Op)
	if s.ops[sub.UserData] != nil {
		m.refuse(s, sub, because(Invalid, "user_data %#x names an operation that is not released yet; use another one", sub.UserData))
		return
	}
	if s.role == Endpoint {
		m.submitEnd(s, sub)
		return
	}
	switch in := sub.Op.(type) {
	case *BindOp, *PutOp, *GetOp:
		m.refuse(s, sub, because(Invalid, "%s is for sessions of the role endpoint (3), this one is a %s", KindOf(sub.Op), s.role))
	case *TakeOp:
		m.submitTake(s, sub, in)
	case *OfferOp:
		m.submitOffer(s, sub, in)
	case *WatchOp:
		m.submitKey(s, sub, MsgKey{Key: in.Key, Token: in.Token, Trace: in.Trace, For: in.Timeout}, in.Peer, in.Timeout)
	case *DropOp:
		m.submitKey(s, sub, MsgKey{Key: in.Key, Token: in.Token, Trace: in.Trace, Drop: true}, in.Peer, in.Timeout)
	}
}

// leavesToNext says whether a submission is left to the next daemon. A daemon that is about to end begins nothing and
// does not answer, since the client sends the submission again to the next one. What acts on an operation that was left
// to the next daemon is left, too: an extension that was refused would cost the client its offer. A PUT is not left,
// but refused: nobody sends it again, since no end comes back. So is what needs memory that is away: it is to fail, and
// the next daemon may find the memory back.
func (m *Machine) leavesToNext(s *session, in Op) bool {
	if !m.stopping || s.ended != nil || aboutRanks(in) && s.asleep() {
		return false
	}
	var target uint64
	switch in := in.(type) {
	case *PutOp:
		return false
	case *CancelOp:
		target = in.Target
	case *WithdrawOp:
		target = in.Target
	case *SealOp:
		target = in.Target
	case *ExtendOp:
		target = in.Target
	}
	leaves := s.ops[target] == nil
	s.left = s.left || leaves && aboutRanks(in)
	return leaves
}

// submitCancel ends an operation, and answers once that operation has ended.
func (m *Machine) submitCancel(s *session, sub *Submit, target uint64) {
	o := s.ops[target]
	if o == nil { // ended before, and released
		m.answer(s, sub)
		return
	}
	w := canceller{s: s, user: sub.UserData, tag: sub.Tag, id: m.newOp(), kind: KindOf(sub.Op)}
	if o.stage == stageReported && !o.untold {
		m.tell(s, Complete{Session: s.id, UserData: w.user, Tag: w.tag, Kind: w.kind, Op: w.id, Status: Done, More: true})
	}
	o.cancels = append(o.cancels, w)
	if o.stage == stageRunning {
		o.owner.cancel(m, o)
	}
}

// maxHolds bounds the blocks that one operation holds, those of all its ranks: each takes as long as another block id. A
// scheduler may have hundreds of ranks; of eight, an operation may name as many blocks as one of a single rank.
const maxHolds = 8 * layout.MaxIDs

// checkBlocks validates lists against every rank's layout. A rank may lack groups that another one has (pipeline stages
// of hybrid models), but every list must be of a group that some rank has, and for the same tokens of each such rank.
func (m *Machine) checkBlocks(ranks []*session, lists []layout.BlockList) Cause {
	if n := layout.CountIDs(lists); n*len(ranks) > maxHolds {
		return because(Quota, "blocks: %d ids, each of a block at %d ranks, are %d blocks, the limit of one operation is %d: split it, or have the ranks offer and take for themselves",
			n, len(ranks), n*len(ranks), maxHolds)
	}
	for i := range lists {
		var known *layout.Group
		for _, s := range ranks {
			g := s.layout.Group(lists[i].Group)
			switch {
			case g == nil:
			case known == nil:
				known = g
			case g.Kind != known.Kind:
				return because(Invalid, "blocks: list %d: group %d is of kind %d at some ranks and %d at rank %d; give them groups of their own", i, g.ID, known.Kind, g.Kind, s.rank)
			case g.Kind == layout.Paged && g.BlockSize != known.BlockSize && !m.cfg.Broken.Uneven:
				return because(Invalid, "blocks: list %d: blocks of group %d are of %d tokens at some ranks and of %d at rank %d, so it cannot name those of all; give them groups of their own",
					i, g.ID, known.BlockSize, g.BlockSize, s.rank)
			}
		}
		if known == nil {
			return because(Invalid, "blocks: list %d is of group %d, which no rank's layout has", i, lists[i].Group)
		}
	}
	var checked *layout.Layout
	for _, s := range ranks {
		if s.layout == checked {
			continue
		}
		checked = s.layout
		own := lists
		for i := range lists {
			if s.layout.Group(lists[i].Group) == nil {
				own = theirs(s.layout, lists)
				break
			}
		}
		if err := s.layout.CheckBlocks(own); err != nil {
			return because(Invalid, "rank %d: %v", s.rank, err)
		}
	}
	return Cause{}
}

func theirs(l *layout.Layout, lists []layout.BlockList) []layout.BlockList {
	var own []layout.BlockList
	for _, b := range lists {
		if l.Group(b.Group) != nil {
			own = append(own, b)
		}
	}
	return own
}
