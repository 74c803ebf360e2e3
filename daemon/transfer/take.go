package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// take is the consumer's end of a transfer, and the client's operation.
//
//	reaching --channel--> asking --MsgGrant--> moving --all landed, MsgSent--> committing --fenced--> over
//	reaching --channel--> seeking --found--> asking (a GET)
//	    any of them --cancel, deadline, refusal, abort, fault--> over, and fenced after that
//
// Its leg is opened by the first grant: before that there is nothing to fence.
type take struct {
	op
	leg     leg
	in      *TakeOp
	ranks   []*session
	layouts []RankLayout
	phase   phase
	get     *get // of a GET

	peer    *peer  // nil: this node
	epoch   uint64 // of the channel over which it was asked
	life    uint64 // incarnation of the daemon at the channel's other end
	asked   bool   // the producer's end may know of it
	known   bool   // it has said so
	asks    int    // repetitions since then
	said    string // why the node that is asked put it off last
	pace    pace   // bounds how often the request is repeated for a layout
	granted bool

	engine      string // the producer's
	incarnation uint64
	segs        []*receiving
	kept        int // counted in peer.held for the grants and plans of its segments
	covered     []spans
	transport   string // of all segments, once it has shrunk; before that the grants say it
	sent        bool   // the producer sent everything
	sentSegs    int
	missing     []layout.Run // blocks that the producer does not have
	aside       []layout.Run // some more, see lack; none if nothing is in missing
	failed      []layout.Run // all blocks; made when account needs them
	layers      []uint32     // see countLayers
	layersReady uint32
	seg0        receiving
	segs1       [1]*receiving // room for what most have: one segment

	deadline, resend, settling timer
	until                      Time // the deadline
	stalls                     int
	hasty                      bool // a link was lost: what it carried will not come
	name                       takeName
	end                        *MsgEnd // said until acknowledged
	word                       lastWord
	endFor                     Time // how long it is still repeated; each repetition takes off a Resend
}

type phase uint8

const (
	phaseReaching phase = iota
	phaseAsking
	phaseMoving
	phaseCommitting
	phaseOver
	phaseSeeking // a GET: its home looks for an item
)

var phaseNames = [...]string{
	phaseReaching: "reaching", phaseAsking: "asking", phaseMoving: "moving", phaseCommitting: "committing", phaseOver: TransferEnded, phaseSeeking: "seeking",
}

// String is the phase's word in the admin interface.
func (p phase) String() string { return phaseNames[p] }

// takeName makes takes idempotent: no two run with one name.
type takeName struct {
	engine *engine
	id     uint64
	part   int
}

func (m *Machine) submitTake(s *session, sub *Submit, in *TakeOp) {
	if in.Restarted {
		m.tellRestarted(s, sub, in)
	} else if !m.moveNow(s, sub, in) {
		m.beginTake(s, sub, in)
	}
}

func (m *Machine) beginTake(s *session, sub *Submit, in *TakeOp) {
	ranks, cause := m.ranks(s)
	if cause.Reason == OK {
		cause = m.checkBlocks(ranks, in.Blocks)
	}
	if in.Parts == 0 {
		in.Parts = 1
	}
	if cause.Reason == OK && (in.Part < 0 || in.Parts < 1 || in.Parts > maxParts || in.Part >= in.Parts) {
		cause = because(Invalid, "part %d of %d: parts must be 1 to %d, and part below it", in.Part, in.Parts, maxParts)
	}
	name := takeName{s.engine, in.TakeID, in.Part}
	if old := m.takeNames[name]; cause.Reason == OK && old != nil {
		cause = because(Busy, "take %d part %d of engine %q runs already as operation %d; wait for that one, cancel it, or use another take id (in Python: another key or part)",
			in.TakeID, in.Part, s.engine.key.name, old.id)
	}
	t := &take{in: in, ranks: ranks, name: name}
	t.exclusive = true
	if cause.Reason == OK {
		cause = m.acquire(&t.op, ranks, in.Blocks)
	}
	if cause.Reason == OK {
		if cause = m.begin(&t.op, sub, s, ranks, creditsMemory, t); cause.Reason != OK {
			t.letGo()
		}
	}
	if cause.Reason != OK {
		m.refuse(s, sub, cause)
		return
	}
	m.lastXfer++
	t.leg = leg{id: Leg{Xfer: m.lastXfer, End: Consumer}, ranks: ranks}
	t.layouts = rankLayouts(ranks)
	m.takes[m.lastXfer] = t
	m.takeNames[name] = t
	t.until = m.now + m.clampTimeout(in.Timeout)
	m.traceOp(&t.op, in.Key, in.Trace, in.Peer, m.lastXfer)
	m.arm(&t.deadline, t, wakeDeadline, t.until)
	m.reach(in.Peer, t)
}

func (m *Machine) clampTimeout(d Time) Time {
	if d <= 0 {
		d = m.cfg.DefaultTimeout
	}
	return min(d, m.cfg.MaxTimeout)
}

// arrive asks, now that the channel is there. The answer to another operation that waited for the same channel may have
// ended this one already: a GET can be refused with its whole end.
func (t *take) arrive(m *Machine, p *peer) {
	if t.phase != phaseReaching {
		return
	}
	t.phase, t.peer = phaseAsking, p
	if p != nil {
		t.epoch, t.life = p.epoch, p.life
		t.leg.id.Peer, t.leg.id.Epoch = p.node, p.epoch
	}
	if t.get != nil {
		t.seek(m)
		return
	}
	t.ask(m)
}

// ask sends MsgTake; it is repeated until granted.
func (t *take) ask(m *Machine) {
	if t.phase != phaseAsking {
		return
	}
	t.asked = true
	msg := t.request(m)
	msg.Xfer, msg.Key, msg.Token, msg.Deadline = t.leg.id.Xfer, t.in.Key, t.in.Token, max(t.until-m.now, 1)
	if t.peer != nil {
		m.arm(&t.resend, t, wakeResend, m.now+m.backoff(t.known, &t.asks))
	}
	m.send(t.peer, msg)
}

// request returns MsgTake without what names an offer, and without its deadline. The peer is told the ranks' layouts first.
func (t *take) request(m *Machine) *MsgTake {
	msg := &MsgTake{
		Engine: t.by.engine.key.name, Instance: t.by.engine.instance, TakeID: t.in.TakeID, Part: t.in.Part, Parts: t.in.Parts,
		Content: t.in.Content, Trace: t.in.Trace, Layered: t.in.Layered, Blocks: t.in.Blocks,
	}
	if t.peer != nil {
		msg.Ranks = m.introduce(t.peer, t.layouts)
	}
	return msg
}

// stranded fails the take: its peer cannot be reached.
func (t *take) stranded(m *Machine, cause Cause) { t.fail(m, Failed, cause) }

// unlinked handles the loss of the channel. What was not granted is asked again on the next one.
func (t *take) unlinked(m *Machine, cause Cause) {
	t.asked, t.known, t.asks, t.said = false, false, 0, ""
	if t.phase != phaseOver || t.end == nil || t.end.Status != Done {
		m.disarm(&t.resend)
	}
	switch {
	case t.phase == phaseOver && t.end != nil && t.end.Status != Done:
		t.end = nil // the producer learns it from the same loss
		t.forget(m)
	case t.phase == phaseOver && t.end != nil:
		m.reach(t.in.Peer, &t.word)
	case t.phase == phaseAsking || t.phase == phaseSeeking:
		if t.get != nil {
			m.seekAnew(t)
		}
		t.phase, t.peer = phaseReaching, nil
		m.reach(t.in.Peer, t)
	case t.phase == phaseMoving:
		t.fail(m, Failed, cause)
	}
}

// onRefuse handles MsgRefuse: the producer will not serve the take, or not yet.
func (t *take) onRefuse(m *Machine, msg *MsgRefuse) {
	switch {
	case t.phase != phaseAsking && t.phase != phaseMoving:
	case msg.Retry > 0: // if it comes after the grant, it was not the last word
		if t.phase == phaseAsking {
			t.putOff(m, msg.Cause, msg.Retry)
		}
	default:
		t.asked = false // the producer's end is over: there is nobody to tell how the take ended
		t.fail(m, Failed, msg.Cause)
	}
}

// putOff asks again later, within bounds, however soon or late a mad producer wants it.
func (t *take) putOff(m *Machine, cause Cause, retry Time) {
	t.said = cause.Text
	m.arm(&t.resend, t, wakeResend, m.now+min(max(retry, m.cfg.Resend), 8*m.cfg.Resend))
}

// onAbort handles MsgAbort: the producer's reads are fenced, but what was sent may still land here until this end is
// fenced, too. A GET that seeks may not have heard that its take had begun.
func (t *take) onAbort(m *Machine, msg *MsgAbort) {
	if t.phase == phaseSeeking || t.phase == phaseAsking || t.phase == phaseMoving {
		t.fail(m, Failed, msg.Cause)
	} else if t.end != nil {
		m.send(t.peer, t.end)
	}
}

func (t *take) fire(m *Machine, which wake) {
	switch {
	case which == wakeSettle:
		t.stalled(m)
	case which == wakeResend && t.phase == phaseOver:
		t.repeatEnd(m)
	case which == wakeResend && t.phase == phaseSeeking:
		t.seek(m)
	case which == wakeResend:
		t.ask(m)
	case which == wakeDeadline:
		t.fail(m, Failed, t.whyLate(m))
	}
}

// whyLate says what the take waited for when its deadline passed.
func (t *take) whyLate(m *Machine) Cause {
	key, limit := short(t.in.Key), duration(t.until-t.began)
	switch t.phase {
	case phaseReaching:
		if c := m.trouble(t.in.Peer); c.Reason != OK {
			return notReached(t.in.Peer, limit, c)
		}
		return because(Timeout, "peer %q was not reached within %s", t.in.Peer, limit)
	case phaseSeeking:
		return t.whySeeking(m)
	case phaseAsking:
		if t.said != "" {
			return because(Timeout, "key %s: nothing was granted within %s; node %q said last: %s", key, limit, t.node(m), t.said)
		}
		return because(Timeout, "key %s: nothing was granted within %s by node %q: the offer is not there, not ready, or being taken by others; "+
			"check key and peer, that the producer runs, and its progress", key, limit, t.node(m))
	}
	for _, s := range t.ranks {
		if s.progress < t.in.After {
			return because(Timeout, "key %s: rank %s of this engine did not reach after = %#x within %s: its progress is %#x", key, rankName(s), t.in.After, limit, s.progress)
		}
	}
	done, all := t.counts()
	return because(Timeout, "key %s: %d of %d slices were in place after %s; give it more time, or look at the producer's progress and at the transport's rate", key, done, all, limit)
}

// node is the node of its producer, or of its home.
func (t *take) node(m *Machine) string {
	if t.peer == nil {
		return m.cfg.Node
	}
	return t.peer.node
}

func (t *take) counts() (done, all int) {
	for _, seg := range t.segs {
		if seg != nil {
			done += int(seg.count)
			all += int(seg.slices)
		}
	}
	return done, all
}

// cancel ends the take at its client's wish, lost because a session or its memory is gone.
func (t *take) cancel(m *Machine, _ *op) {
	t.fail(m, WasCancelled, because(Cancelled, "cancelled by its owner"))
}

func (t *take) lost(m *Machine, o *op, s *session, cause Cause) {
	if len(o.notify) > 1 {
		cause = m.bereft(s, string(t.in.Key), cause, Unavailable, "take again when it is back")
	}
	t.fail(m, Failed, cause)
}

func (t *take) busy() bool { return t.leg.busy() }

// account returns the bytes of a rank, or of all ranks to the session that asked, and the blocks that must not be used.
func (t *take) account(o *op, s *session) (uint64, []layout.Run) {
	if t.get != nil && (o.status != Done || len(t.segs) == 0) {
		return t.get.bytes, nil
	}
	if o.status == Failed && len(t.missing) == 0 {
		if t.failed == nil {
			t.failed = runsOf(t.in.Blocks)
		}
		return 0, t.failed
	}
	if o.status == WasCancelled {
		return 0, nil
	}
	n := uint64(0)
	for _, seg := range t.segs {
		if s == o.by || len(t.ranks) == 1 {
			n += seg.bytes
		} else {
			n += seg.rankBytes[s.rank]
		}
	}
	return n, t.missing
}

func (t *take) freed(m *Machine, _ *op) {
	delete(m.takeNames, t.name)
	t.forgetGrants()
	if t.end == nil {
		t.forget(m)
		return
	}
	t.shrink()
}

// forget drops a take that was released, once its producer knows how it ended.
func (t *take) forget(m *Machine) {
	if t.stage == stageReleased && t.end == nil {
		m.disarm(&t.resend)
		delete(m.takes, t.leg.id.Xfer)
	}
}
