package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// A take of a few blocks from an offer that is ready on this node needs little of the machinery. If the driver moves it
// while the machine stands still, nothing can happen between its beginning and its end. All that a take has to pass is
// checked first. Then MoveNow goes out, and MovedNow is the next event. If a check fails, or the driver cannot move all
// of it, the take begins as every other does, as if this had not been tried. Refusals get their words there.

// MoveNow asks the driver to plan and copy a whole take within this node, now. MovedNow answers it, and has to be the machine's
// next event. Nothing comes in between, so nobody is asked to hold or fence anything. What it points to is valid until then.
type MoveNow struct {
	Producer, Consumer []RankLayout
	Src, Dst           []layout.BlockList
	Whole              bool
	Granted            Granted // to be said before the first byte; Slot NoSlot: nobody asks for it
}

// MovedNow answers MoveNow. OK: every byte of every destination block is in place. Otherwise any part of them may have been written.
type MovedNow struct {
	OK    bool
	Bytes uint64
}

// Yield asks the driver to carry out all effects before it, and then to give the machine Resume as its next event. So
// the session that took hears of it before the machine sees to the offer.
type Yield struct{}

// Resume answers Yield.
type Resume struct{}

func (*MoveNow) effect() {}
func (Yield) effect()    {}
func (MovedNow) event()  {}
func (Resume) event()    {}

// trial is the take that is being moved at once.
type trial struct {
	s     *session
	sub   Submit
	in    *TakeOp
	offer *offer
	began Time
	move  MoveNow
	done  Complete
	// Only for a GET: its take, and the item that it found.
	get  *take
	item *item

	pending bool // MovedNow is still to come
}

// moveNow tries to have a take moved at once. It returns false if it did not even try.
func (m *Machine) moveNow(s *session, sub *Submit, in *TakeOp) bool {
	if m.cfg.AtOnce == 0 || m.cfg.Debug || m.trial.pending || m.trial.s != nil || in.Layered || in.Part != 0 || in.Parts > 1 || in.Peer != "" && in.Peer != m.cfg.Node {
		return false
	}
	o := m.offers[string(in.Key)]
	if o == nil || !o.ready(m.cfg.AtOnce) || !m.mayMove(s, o, in) {
		return false
	}
	x := &m.trial
	x.s, x.sub, x.in, x.offer, x.began, x.pending = s, *sub, in, o, m.now, true
	x.move = MoveNow{Producer: o.layouts, Consumer: s.asRank[:], Src: o.members[0].segs[0].blocks, Dst: in.Blocks, Whole: o.whole(),
		Granted: Granted{Session: s.id, Slot: in.LayerSlot, UserData: sub.UserData}}
	m.emit(&x.move)
	return true
}

// ready says whether one operation offered all of the blocks, most at most, and its ranks have written them. An offer
// that is being taken is not ready.
func (o *offer) ready(most int) bool {
	if !o.joined || len(o.members) != 1 || len(o.serves) > 0 {
		return false
	}
	mb := o.members[0]
	if !mb.sealed || len(mb.segs) != 1 || mb.segs[0].layered || layout.CountIDs(mb.segs[0].blocks) > most {
		return false
	}
	for _, s := range o.ranks {
		if s.progress < mb.segs[0].after {
			return false
		}
	}
	return true
}

// mayMove makes all checks of a take at either end that come before its first byte.
func (m *Machine) mayMove(s *session, o *offer, in *TakeOp) bool {
	switch {
	case s.role != Worker || s.layout == nil || m.regionsThere(s).Reason != OK || s.progress < in.After:
	case s.credits < creditsMemory || len(s.owed) > 0:
	case layout.CountIDs(in.Blocks) > m.cfg.AtOnce || m.checkBlocks(s.self[:], in.Blocks).Reason != OK:
	case o.authorise(&MsgTake{Token: in.Token, Content: in.Content, Parts: 1}).Reason != OK && !m.cfg.Broken.Stranger:
	case len(m.takeNames) > 0 && m.takeNames[takeName{s.engine, in.TakeID, 0}] != nil:
	case !o.admits(claimOf(s, in)) || o.claim(claimOf(s, in)) != nil:
	case m.agree(o.layouts, s.asRank[:]).Reason != OK:
	default:
		return m.cfg.Broken.Hold || s.holds.Free(in.Blocks)
	}
	return false
}

func claimOf(s *session, in *TakeOp) claimName {
	return claimName{s.engine.key.name, s.engine.instance, in.TakeID}
}

// movedNow ends the take, or begins it the usual way.
func (m *Machine) movedNow(ev MovedNow) {
	x := &m.trial
	x.pending = false
	switch {
	case x.s == nil:
	case x.get != nil:
		m.movedItem(ev)
	case !ev.OK && !m.cfg.Broken.Torn:
		s, sub, in := x.s, x.sub, x.in
		m.trial = trial{}
		m.beginTake(s, &sub, in)
	default:
		x.s.credits--
		x.done = Complete{
			Session: x.s.id, UserData: x.sub.UserData, Tag: x.sub.Tag, Kind: KindTake, Age: m.now - x.began, Op: m.newOp(), Bytes: ev.Bytes, Status: Done,
		}
		m.emit(&x.done)
		m.emit(Yield{})
	}
}

// resume counts the take at its offer, which may end by that. For a GET, it consumes the item.
func (m *Machine) resume() {
	x := &m.trial
	if x.s == nil {
		return
	}
	if t := x.get; t != nil {
		*x = trial{}
		if k := &t.get.local; k.item != nil {
			m.consumedBy(k)
		} else {
			m.dropSeeker(k)
		}
		return
	}
	o, name, bytes := x.offer, claimOf(x.s, x.in), x.done.Bytes
	*x = trial{}
	o.bytes += bytes
	o.renew(m)
	o.commit(m, o.enter(name, 1), 0)
}
