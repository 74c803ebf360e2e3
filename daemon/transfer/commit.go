package transfer

import (
	"fmt"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// onSent handles MsgSent: the producer has sent every slice, under one hold of that incarnation of the offer.
func (t *take) onSent(m *Machine, msg *MsgSent) {
	switch {
	case t.phase == phaseOver:
		if t.end != nil {
			m.send(t.peer, t.end)
		}
		return
	case t.phase != phaseMoving:
		return
	case msg.Incarnation != t.incarnation && !m.cfg.Broken.Incarnation:
		t.fail(m, Failed, because(Expired, "key %s: the offer was replaced by another one while it was being taken", short(t.in.Key)))
		return
	}
	t.sent, t.sentSegs = true, int(msg.Segs)
	t.tryCommit(m)
	if t.phase == phaseMoving && t.settling.pos == 0 {
		t.settleLater(m)
	}
}

func (t *take) settleLater(m *Machine) {
	if t.hasty {
		m.arm(&t.settling, t, wakeSettle, m.now+m.cfg.Settle/8)
		return
	}
	m.arm(&t.settling, t, wakeSettle, m.now+m.cfg.Settle<<min(t.stalls, 3))
}

// stalled runs when the producer has sent everything and some of it has not come. Once nothing at all has landed for a
// while, it asks again for the missing slices: they were lost with their link.
func (t *take) stalled(m *Machine) {
	if t.phase != phaseMoving {
		return
	}
	t.stalls++
	if t.stalls > 1 || t.hasty {
		t.hasty = false
		for i, seg := range t.segs {
			if seg == nil || !seg.open || seg.grant.HasInline || t.phase != phaseMoving {
				continue
			}
			var lost []uint32
			for s := range seg.slices {
				if !seg.has(s) {
					lost = append(lost, s)
				}
			}
			if lost != nil {
				t.again(m, uint32(i), lost, because(PeerGone, "nothing arrived for %s after node %q had sent it", duration(m.cfg.Settle), t.leg.id.Peer))
			}
		}
	}
	if t.phase == phaseMoving {
		t.settleLater(m)
	}
}

// tryCommit begins the commit. The receiver decides, once every slice of every segment is in place and the producer has
// said, under one hold, that this is all. The fence comes before the report.
func (t *take) tryCommit(m *Machine) {
	if t.phase != phaseMoving || !t.complete() && !m.cfg.Broken.Commit {
		return
	}
	if !t.sent && !t.allInline() {
		return
	}
	t.countLanding(phaseCommitting)
	t.phase = phaseCommitting
	m.disarm(&t.settling)
	m.fenceLeg(&t.leg)
}

// complete says whether all announced slices are in place.
func (t *take) complete() bool {
	if t.sent && len(t.segs) < t.sentSegs {
		return false
	}
	for _, seg := range t.segs {
		if seg == nil || !seg.planned || !seg.open || seg.count < seg.slices {
			return false
		}
	}
	return true
}

// allInline says whether the grants carry all bytes and the mark of the last segment. Then no further word of the
// producer is needed.
func (t *take) allInline() bool {
	last := false
	for _, seg := range t.segs {
		if seg == nil || !seg.grant.HasInline {
			return false
		}
		last = last || seg.grant.Last
	}
	return last
}

// countLanding counts the items that are on their way from a peer. next is the phase that the take is about to enter.
func (t *take) countLanding(next phase) {
	switch {
	case t.get == nil || t.peer == nil || t.phase == next:
	case next == phaseMoving:
		t.peer.landing++
	case t.phase == phaseMoving:
		t.peer.landing--
	}
}

// fenced handles the answer to the leg's fence: nothing lands any more, or, with a cause, the fence failed for now.
func (t *take) fenced(m *Machine, cause Cause) {
	if cause.Reason != OK {
		if t.phase == phaseCommitting {
			t.fail(m, Failed, cause)
		}
		m.quarantine(&t.op, cause)
		return
	}
	if t.phase == phaseCommitting {
		t.decide(m)
	}
	m.settle(&t.op)
	m.leaveLeg(&t.leg)
}

// decide ends a take whose commit was due, now that the fence is done and nothing can spoil it any more.
func (t *take) decide(m *Machine) {
	if !t.complete() && !m.cfg.Broken.Commit {
		end := t.fail
		if m.cfg.Broken.Spoiled {
			end = t.finish
		}
		end(m, Failed, because(Corrupt, "key %s: a late copy of a slice spoiled it; take it again", short(t.in.Key)))
		return
	}
	if m.frozen && t.get != nil && t.peer != nil { // its home might not hear of it any more, and the item would be received again
		t.fail(m, Failed, because(Restarted, "the daemon of node %q ends; open the end again", m.cfg.Node))
		return
	}
	t.lookAround()
	if m.cfg.Broken.Groups {
		t.missing = slices.DeleteFunc(t.missing, func(r layout.Run) bool { return r.Group > 0 })
	}
	if len(t.missing) > 0 {
		t.finish(m, Failed, because(NotFound, "key %s: the offer lacks some of the blocks asked for, the first of them block %d of group %d here%s; compute those that are listed as failed, "+
			"or ask for tokens that it has", short(t.in.Key), t.missing[0].First, t.missing[0].Group, t.beyond()))
		return
	}
	t.finish(m, Done, Cause{})
}

// lookAround adds to missing, once and when all segments are known, what no segment covers. If the producer's engine is
// on several nodes, groups of which this producer has no layer are left out, as in the plan of a single segment.
func (t *take) lookAround() {
	t.gather()
	if t.covered == nil {
		return
	}
	lists := t.in.Blocks
	if seg := t.segs[len(t.segs)-1]; !seg.grant.Whole {
		lists = slices.DeleteFunc(slices.Clone(lists), func(b layout.BlockList) bool { return groupOf(seg.producers, b.Group) == nil })
	}
	t.missing, t.covered = unite(t.missing, uncovered(t.layouts, lists, t.covered)), nil
}

// beyond says how far the offer reaches, for a consumer that asked for more; "" if something else is missing.
func (t *take) beyond() string {
	var asked, has uint64
	for _, b := range t.in.Blocks {
		asked = max(asked, uint64(b.FirstToken)+uint64(b.NTokens))
	}
	for _, seg := range t.segs {
		if seg != nil && seg.grant != nil {
			has = max(has, uint64(seg.grant.Tokens))
		}
	}
	if has == 0 || asked <= has {
		return ""
	}
	return fmt.Sprintf(" (it has %d tokens, this asks for those up to %d)", has, asked)
}

// fail ends a take that cannot be done any more. That includes a take whose commit waits for a fence that does not
// come, when its deadline passes or its client cancels it.
func (t *take) fail(m *Machine, status Status, cause Cause) {
	if t.phase == phaseOver {
		return
	}
	if t.phase == phaseReaching {
		m.forgo(t.in.Peer, t)
	}
	t.missing, t.aside = nil, nil
	t.finish(m, status, cause)
}

// finish tells how the take ended: the sessions, and the producer until it acknowledges.
func (t *take) finish(m *Machine, status Status, cause Cause) {
	t.countLanding(phaseOver)
	t.phase = phaseOver
	m.disarm(&t.deadline)
	m.disarm(&t.settling)
	m.disarm(&t.resend)
	for _, s := range t.ranks {
		m.unwait(s, t)
	}
	m.fenceLeg(&t.leg)
	if t.get != nil {
		m.leaveGet(t, status)
	}
	if t.asked || t.granted && status == Done {
		t.end, t.endFor = &MsgEnd{Xfer: t.leg.id.Xfer, Incarnation: t.incarnation, Status: status, Cause: cause}, m.cfg.Linger
		if t.get != nil {
			t.endFor += 2 * m.cfg.Linger // longer than its home keeps the item in doubt
		}
		if t.peer != nil && t.peer.up { // this may not be the channel that carried its bytes
			t.epoch, t.asked = t.peer.epoch, true
		} else if t.peer != nil && status == Done { // the channel was lost while the take waited for the fence
			m.reach(t.in.Peer, &t.word)
		}
		t.sayEnd(m, t.get != nil && status == Done && t.peer != nil && t.peer.landing > 0)
	}
	m.conclude(&t.op, status, cause)
	t.forget(m)
}

// sayEnd says MsgEnd; a commit record is also said on later channels. more: those of other items follow.
func (t *take) sayEnd(m *Machine, more bool) {
	if t.peer != nil && t.peer.life != t.life {
		m.sayConsumed(t)
	}
	m.sendMore(t.peer, t.end, more)
	if t.peer != nil && t.resend.pos == 0 {
		m.arm(&t.resend, t, wakeResend, m.now+m.cfg.Resend)
	}
}

// repeatEnd says MsgEnd again. It stops after a number of times, not after a time, because this node may have stood
// still. What is said over a new channel is said between these times, and does not count: however often channels come
// and go, the end is known until its time is over.
func (t *take) repeatEnd(m *Machine) {
	if !t.awaitsHome() {
		t.endFor -= m.cfg.Resend
	}
	if t.endFor < 0 {
		t.end = nil
		m.forgo(t.in.Peer, &t.word)
		t.forget(m)
		return
	}
	t.sayEnd(m, false)
}

// awaitsHome says whether this is a get of an open end whose home cannot be told now. The home may be away for any
// length of time and keep the item in doubt, so that time does not count in endFor.
func (t *take) awaitsHome() bool {
	return t.get != nil && t.get.end.stage == stageRunning && t.peer != nil && !t.peer.up
}

// sayConsumed tells a producer's daemon that was restarted since, and knows nothing of the transfer, that its engine's
// offer was taken. It sends a drop that names the engine's instance, which says all that a daemon has to know when the
// offer comes back to it: should the instance take it again, it is still one consumer. Offers that workers took in parts
// are left to their lease.
func (m *Machine) sayConsumed(t *take) {
	if t.end.Status == Done && t.in.Parts == 1 && t.get == nil { // items do not come back
		e := t.by.engine
		m.send(t.peer, &MsgKey{Engine: e.key.name, Instance: e.instance, Key: t.in.Key, Token: t.in.Token, Drop: true})
	}
}

// lastWord has a channel opened for a commit record that was not acknowledged when the channel before was lost. Once
// the channel is up, resayEnds sends the record.
type lastWord struct{ _ bool }

func (*lastWord) arrive(*Machine, *peer)   {}
func (*lastWord) stranded(*Machine, Cause) {}

// resayEnds repeats the commit records that a lost channel may have swallowed.
func (m *Machine) resayEnds(p *peer) {
	for _, t := range m.takesOf(p) {
		if t.phase == phaseOver && t.end != nil {
			t.epoch, t.asked = p.epoch, true
			t.sayEnd(m, false)
		}
	}
}

func (t *take) onEndAck(m *Machine) {
	if t.phase == phaseOver {
		t.end = nil
		m.forgo(t.in.Peer, &t.word)
		m.disarm(&t.resend)
		t.forget(m)
	}
}
