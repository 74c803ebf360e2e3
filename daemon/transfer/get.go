package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// get is what a take has in addition if it is a GET: what it looks for, and what it found.
type get struct {
	take  take
	in    *GetOp
	end   *bind
	what  TakeOp // the take of what was found
	local seeker // its seeker, when the home is on this node
	why   uint8  // what it waits for, as the home said last
	bytes uint64 // moved at once
}

func (m *Machine) submitGet(s *session, sub *Submit, in *GetOp) {
	b, cause := bindOf(s, in.Target)
	if cause.Reason == OK {
		cause = m.mayGet(s, b, in)
	}
	if cause.Reason != OK {
		m.refuse(s, sub, cause)
		return
	}
	g := &get{in: in, end: b}
	t := &g.take
	t.get, t.exclusive, t.ranks = g, true, s.self[:1:1]
	if len(in.Blocks) > 0 {
		cause = m.acquire(&t.op, t.ranks, in.Blocks)
	}
	if cause.Reason == OK {
		if cause = m.begin(&t.op, sub, s, nil, creditsMemory, t); cause.Reason != OK {
			t.letGo()
		}
	}
	if cause.Reason != OK {
		m.refuse(s, sub, cause)
		return
	}
	m.lastXfer++
	t.leg = leg{id: Leg{Xfer: m.lastXfer, End: Consumer}, ranks: t.ranks}
	t.layouts = rankLayouts(t.ranks)
	t.in = &g.what
	t.until = m.now + m.getTimeout(in.Timeout)
	g.reset()
	m.takes[m.lastXfer] = t
	b.gets++
	b.tokens += len(in.Tokens)
	m.traceOp(&t.op, []byte(b.name.name), "", b.peer, m.lastXfer)
	m.arm(&t.deadline, t, wakeDeadline, t.until)
	m.reach(b.peer, t)
}

// maxGetTimeout bounds how long a GET waits. Receivers may be idle for long.
const maxGetTimeout = 30 * 24 * 3600 * Second

func (m *Machine) getTimeout(d Time) Time {
	if d <= 0 {
		d = m.cfg.DefaultTimeout
	}
	return min(d, maxGetTimeout)
}

// seekAnew begins the search again after the channel was lost. The transfer gets another name, so that what was said
// about the old one is not mistaken for an answer to the new one.
func (m *Machine) seekAnew(t *take) {
	delete(m.takes, t.leg.id.Xfer)
	m.lastXfer++
	t.leg.id = Leg{Xfer: m.lastXfer, End: Consumer}
	m.takes[m.lastXfer] = t
	t.get.reset()
}

// reset forgets what was found.
func (g *get) reset() {
	g.what = TakeOp{Peer: g.end.peer, TakeID: uint64(g.take.id), Parts: 1, LayerSlot: NoSlot, Timeout: g.in.Timeout, Blocks: g.in.Blocks}
}

// mayGet judges a get before anything is held for it.
func (m *Machine) mayGet(s *session, b *bind, in *GetOp) Cause {
	fits := in.Match == MatchItem || in.Match == MatchDecline ||
		(in.Match == MatchNext) == !b.kind.buffer() && in.Match >= MatchNext && in.Match <= MatchKey
	switch {
	case b.kind.home():
		return because(Invalid, "%s: this is the sending end; open a receiving one to get", b.name)
	case b.verdict != nil:
		return *b.verdict
	case !fits:
		return because(Invalid, "%s: match is %d: must be 1 (next) for a pipe; 2 (any), 3 (prefix), 4 (exact) or 5 (key) for a buffer; or 6, 7 of an item", b.name, in.Match)
	case b.tokens+len(in.Tokens) > MaxHeldTokens:
		return because(Quota, "%s: queries with %d tokens wait, with these %d; the limit is %d: wait for some", b.name, b.tokens, len(in.Tokens), MaxHeldTokens)
	case in.Room == 0 && len(in.Blocks) == 0:
		return Cause{}
	}
	return m.coversBytes(s, in.Blocks, in.Room)
}

// seek asks the home, on this node or over the channel.
func (t *take) seek(m *Machine) {
	g := t.get
	b := g.end
	t.phase = phaseSeeking
	if t.peer == nil {
		k := &g.local
		*k = seeker{
			id: legOf(nil, t.leg.id.Xfer, Producer), take: t, match: g.in.Match, seq: g.in.Seq, key: g.in.Key, tokens: g.in.Tokens,
			room: g.in.Room, keep: m.getTimeout(g.in.Timeout), token: b.token,
		}
		b.at, b.asked = nil, true
		m.beginSeek(k, b.name, endID{bind: b.end})
		return
	}
	if cause := b.mayMix(t.peer); cause.Reason != OK {
		t.fail(m, Failed, cause)
		return
	}
	t.asked = true
	b.at, b.asked = t.peer, true
	seq := g.in.Seq
	if g.in.Match == MatchNext {
		seq += b.base
	}
	msg := &MsgSeek{
		Xfer: t.leg.id.Xfer, Bind: b.end, Home: b.homeID, Base: b.base, Buffer: b.name.buffer, Name: b.name.name, Token: b.token,
		Match: g.in.Match, Seq: seq, Key: g.in.Key, Tokens: g.in.Tokens, Room: g.in.Room, Keep: m.getTimeout(g.in.Timeout), Deadline: max(t.until-m.now, 1),
	}
	if len(t.in.Blocks) > 0 {
		msg.Take = t.request(m)
	}
	m.send(t.peer, msg)
	m.arm(&t.resend, t, wakeResend, m.now+m.backoff(t.known, &t.asks))
}

// finding is what the home has for a GET.
type finding struct {
	Item, Bytes, Capacity, Matched uint64
	Meta, Key, Token               []byte
	Taken                          bool
}

// found handles an item that the home has. It is taken if there is room for it.
func (t *take) found(m *Machine, f *finding, it *item) {
	g := t.get
	t.got = &Got{Item: f.Item, Bytes: f.Bytes, Capacity: f.Capacity, Matched: f.Matched, Meta: f.Meta}
	switch {
	case g.in.Match == MatchDecline:
		t.got = nil
		t.finishHere(m)
		return
	case f.Bytes > g.in.Room:
		t.short = true
		t.finishHere(m)
		return
	}
	if f.Bytes == 0 && it == nil { // no bytes have to come, and MsgEnd is the commit record
		t.finish(m, Done, Cause{})
		return
	}
	g.what.Blocks = t.clipTo(f.Bytes)
	if it != nil && m.moveItem(t, it) {
		return
	}
	if it != nil {
		o := m.asOffer(it)
		f.Key, f.Token = []byte(o.key), o.token
	}
	g.what.Key, g.what.Token = f.Key, f.Token
	t.phase, t.known, t.asks, t.said = phaseAsking, f.Taken, 0, ""
	if !f.Taken { // else MsgTake goes out only if nothing was granted by the time at which MsgSeek would have been repeated
		t.ask(m)
	}
}

// clipTo returns as much of the get's blocks as an item of that many bytes needs.
func (t *take) clipTo(bytes uint64) []layout.BlockList {
	if bytes == 0 {
		return nil
	}
	b := t.get.in.Blocks[0]
	return clipTo(b, t.by.layout.Group(b.Group), bytes)
}

// finishHere ends a GET of which the home need not hear any more.
func (t *take) finishHere(m *Machine) {
	t.asked = false
	t.finish(m, Done, Cause{})
}

// whySeeking says what a GET waited for when its deadline passed.
func (t *take) whySeeking(m *Machine) Cause {
	g := t.get
	why, node := g.why, t.node(m)
	if t.peer == nil {
		why = m.whyWaiting(&g.local)
	}
	text := waitTexts[min(int(why), len(waitTexts)-1)]
	switch {
	case t.said != "" && g.end.name.buffer:
		return because(Timeout, "%s on node %q: nothing came within %s; that node said last: %s", g.end.name, node, duration(t.until-t.began), t.said)
	case t.said != "":
		text = "that node said last: " + t.said
	case why == waitsForHome || why == waitsForOther:
	case g.in.Match == MatchKey:
		text = "nothing is under the key " + short(g.in.Key)
	case g.end.name.buffer: // the home may have been empty only when it was asked
		text = waitTexts[waitsForMatch]
	}
	if !g.end.name.buffer { // asked for ahead of the caller, so this timeout is not the caller's
		return because(Timeout, "%s on node %q: %s", g.end.name, node, text)
	}
	return because(Timeout, "%s on node %q: %s within %s", g.end.name, node, text, duration(t.until-t.began))
}

// What a GET waits for; also MsgSeekParked.Why.
const (
	waitsForHome uint8 = iota
	waitsForItem
	waitsForMatch
	waitsForOther
)

var waitTexts = [...]string{
	waitsForHome:  "no sender opened it",
	waitsForItem:  "nothing was put into it",
	waitsForMatch: "no entry matched",
	waitsForOther: "what matches was being received by another and did not come back",
}

// leaveGet is called when a GET is over. A home on this node learns it here, unless the end of a transfer tells it.
func (m *Machine) leaveGet(t *take, status Status) {
	g := t.get
	g.end.gets--
	g.end.tokens -= len(g.in.Tokens)
	x := &m.trial
	if status != Done {
		t.got, t.short = nil, false
		if x.get == t { // MovedNow is still to come, and then means nothing
			x.s, x.get, x.item = nil, nil, nil
		}
	}
	if k := &g.local; k.place != nil && status != Done && !t.asked {
		m.unseek(k)
	}
}
