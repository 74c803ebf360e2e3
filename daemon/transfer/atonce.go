package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// A take of a few blocks from an offer that lies ready on the own node needs little of the machinery: nothing can happen
// between its beginning and its end if the driver moves it while the machine stands still. All that a take has to pass is
// looked at first; then MoveNow is the step's only effect and MovedNow the next event. When anything does not fit, or
// the driver could not move all of it, the take begins as every other does, as if it had not been tried: that is where refusals
// get their words.

// MoveNow: plan and copy a whole take within this node, now. Answered by MovedNow, which has to be the next event that the machine
// is given: nobody is asked to hold or fence anything, because nothing comes in between. What it points to is valid until then.
type MoveNow struct {
	Producer, Consumer []RankLayout
	Src, Dst           []layout.BlockList
	Whole              bool
	Granted            Granted // to be said before the first byte; Slot NoSlot: nobody asks
}

// MovedNow answers MoveNow. OK: every byte of every destination block is in place. If not, it does not matter how many are.
type MovedNow struct {
	OK    bool
	Bytes uint64
}

// Yield: do what was asked for before, then let Resume be the machine's next event. So whoever took hears of it before the offer
// is seen to.
type Yield struct{}

// Resume answers Yield.
type Resume struct{}

func (*MoveNow) effect() {}
func (Yield) effect()    {}
func (MovedNow) event()  {}
func (Resume) event()    {}

// trial is the take that is being moved.
type trial struct {
	s     *session
	sub   Submit
	in    *TakeOp
	offer *offer
	began Time
	move  MoveNow
	done  Complete
	// Or it is of an item that a GET found.
	get  *take
	item *item

	pending bool // MovedNow is still to come
}

// moveNow tries to have a take moved at once; false: it was not even tried.
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

// ready: a single operation offered few blocks, all of them, and its ranks have written them.
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

// mayMove is everything that a take is asked at either end before its first byte.
func (m *Machine) mayMove(s *session, o *offer, in *TakeOp) bool {
	switch {
	case s.role != Worker || s.layout == nil || m.regionsThere(s).Reason != OK || s.progress < in.After:
	case s.credits < creditsMemory || len(s.owed) > 0:
	case layout.CountIDs(in.Blocks) > m.cfg.AtOnce || checkBlocks(s.self[:], in.Blocks).Reason != OK:
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

// resume counts the take at its offer, which may end with it.
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
