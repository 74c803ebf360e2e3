package transfer

// sending is a segment at the producer's end.
type sending struct {
	last      bool // no further segment followed when it was planned
	clipped   bool
	planned   bool
	granted   bool
	ready     bool // the consumer expects its slices
	inline    []byte
	hasInline bool
	crc       uint32
	transport string
	slices    uint32
	bytes     uint64
	pieces    uint64 // of memory
	rankBytes map[uint32]uint64
	marks     []Mark
	mark      int            // progress lets the marks before this index through
	allowed   uint32         // slices that progress lets through
	next      uint32         // slices posted for the first time
	ended     uint32         // first attempts that ended
	again     []uint32       // slices that wait to be sent again, each listed once
	tries     map[uint32]try // of slices that were asked for again
	flying    int
}

// try is what is known of a slice that is sent again.
type try struct {
	attempt uint32 // the latest attempt that was asked for; those before it are not awaited any more
	waits   bool   // it is in sending.again
}

// advance plans the segments that the offer has and this take does not have yet.
func (v *serve) advance(m *Machine) {
	if v.state != serveMoving {
		return
	}
	o := v.offer
	for n := o.segments(); len(v.segs) < n; {
		if cause := v.keepSegment(m); cause.Reason != OK {
			v.abort(m, cause)
			return
		}
		i := len(v.segs)
		seg := &v.seg0
		if i > 0 {
			seg = new(sending)
		}
		seg.last = o.sealed() && i == n-1
		seg.clipped = i > 0 || !seg.last
		v.segs = append(v.segs, seg)
		if v.leg.state == legNew {
			o.opens(1)
			m.openLeg(&v.leg)
		}
		src, srcBy := o.source(i)
		dst := v.take.Blocks
		if seg.clipped {
			dst = spansOf(src, srcBy).clip(v.consumers, dst)
		}
		m.emit(MakePlan{
			Leg: v.leg.id, Seg: uint32(i), Producer: o.layouts, Consumer: v.consumers,
			Src: src, SrcBy: srcBy, Dst: dst, User: v.user(m),
			Layered: o.layered(i) || v.take.Layered, Whole: o.whole(),
		})
	}
	v.finishSending(m)
}

// user is whose session takes, if it is one of this node.
func (v *serve) user(m *Machine) uint32 {
	if v.peer == nil {
		if t := m.takes[v.leg.id.Xfer]; t != nil {
			return t.by.user
		}
	}
	return 0
}

// planned handles a segment's plan.
func (v *serve) planned(m *Machine, ev *Planned) {
	if v.state != serveMoving || int(ev.Seg) >= len(v.segs) || v.segs[ev.Seg].planned {
		return
	}
	if ev.Cause.Reason != OK {
		v.abort(m, ev.Cause)
		return
	}
	if cause := v.keepPlan(m, ev); cause.Reason != OK {
		v.abort(m, cause)
		return
	}
	seg := v.segs[ev.Seg]
	seg.planned, seg.transport, seg.slices, seg.bytes = true, ev.Transport, ev.Slices, ev.Bytes
	seg.pieces, seg.rankBytes, seg.marks = ev.Pieces, ev.RankBytes, ev.Marks
	if first := v.segs[0].transport; first != "" {
		seg.transport = first // a leg has one transport, whose fence stops all of it
	}
	seg.hasInline = ev.Inline && v.peer != nil && ev.Slices > 0
	if v.peer == nil {
		if t := m.takes[v.leg.id.Xfer]; t != nil {
			t.lack(ev.Missing)
		}
	}
	if seg.hasInline {
		v.readInline(m, ev.Seg)
		return
	}
	v.grant(m, ev.Seg)
}

// readInline asks for a small segment's bytes once its ranks are that far. The bytes ride inside the grant.
func (v *serve) readInline(m *Machine, i uint32) {
	if v.arrived(m, int(i), true) {
		m.emit(ReadInline{Leg: v.leg.id, Seg: i})
		v.segs[i].ready = true
	}
}

func (v *serve) inlineRead(m *Machine, ev *InlineRead) {
	if v.state != serveMoving || int(ev.Seg) >= len(v.segs) || v.segs[ev.Seg].granted {
		return
	}
	if ev.Cause.Reason != OK {
		v.abort(m, ev.Cause)
		return
	}
	seg := v.segs[ev.Seg]
	seg.inline, seg.crc = ev.Data, ev.CRC
	seg.next, seg.ended = seg.slices, seg.slices
	v.grant(m, ev.Seg)
	v.finishSending(m)
}

// grant tells the consumer what will be moved.
func (v *serve) grant(m *Machine, i uint32) {
	o, seg := v.offer, v.segs[i]
	if !seg.granted {
		seg.granted = true
		o.renew(m)
	}
	g := &MsgGrant{
		Xfer: v.leg.id.Xfer, Seg: i, Incarnation: o.incarnation, Engine: o.engine.key.name, Whole: o.whole(),
		Tokens: o.tokens(int(i)), Last: seg.last, Layered: o.layered(int(i)) || v.take.Layered,
		Transport: seg.transport, Slices: seg.slices, Bytes: seg.bytes,
		Inline: seg.inline, InlineCRC: seg.crc, HasInline: seg.hasInline,
	}
	g.Blocks, g.BlocksBy = o.source(int(i))
	if v.peer != nil {
		g.Ranks = m.introduce(v.peer, o.layouts)
	}
	m.send(v.peer, g)
}

// arrived says whether every rank's progress has reached what a segment waits for. Layered portions count only if
// layers is set: then all their layers have to be written.
func (v *serve) arrived(m *Machine, i int, layers bool) bool {
	ok := true
	for _, s := range v.offer.ranks {
		p := v.offer.portionOf(s, i)
		switch {
		case !p.layered:
			ok = m.progressedTo(s, p.after, v) && ok
		case layers:
			ok = m.progressedTo(s, p.layer(len(s.layout.Layers())-1), v) && ok
		}
	}
	return ok
}

// layer is the progress at which a rank has written its l-th layer, counted from 0.
func (p *portion) layer(l int) uint64 { return p.after&^0xffff | uint64(l+1) }

// permit moves seg.allowed on: to all slices once the ranks are that far, or layer by layer as each rank writes.
func (v *serve) permit(m *Machine, i int) {
	seg := v.segs[i]
	if seg.allowed == seg.slices || !seg.ready || !v.arrived(m, i, false) {
		return
	}
	if !v.offer.layered(i) {
		seg.allowed = seg.slices
		return
	}
	for ; seg.mark < len(seg.marks); seg.mark++ {
		k := seg.marks[seg.mark]
		seg.allowed = k.First
		if s := v.offer.rank(k.SrcRank); s != nil {
			if p := v.offer.portionOf(s, i); p.layered && !m.progressedTo(s, p.layer(int(k.SrcLayer)), v) {
				return
			}
		}
	}
	seg.allowed = seg.slices
}

func (o *offer) rank(r uint32) *session {
	for _, s := range o.ranks {
		if s.rank == r {
			return s
		}
	}
	return nil
}

// progressed goes on with the segments that waited for a rank's progress.
func (v *serve) progressed(m *Machine) {
	if v.state != serveMoving {
		return
	}
	for i, seg := range v.segs {
		switch {
		case seg.hasInline && !seg.ready:
			v.readInline(m, uint32(i))
		case seg.ready && !seg.hasInline:
			v.permit(m, i)
		}
	}
	m.enqueue(v)
}

// onGo handles MsgGo: the consumer is ready for a segment.
func (v *serve) onGo(m *Machine, msg *MsgGo) {
	if v.state != serveMoving || int(msg.Seg) >= len(v.segs) {
		return
	}
	seg := v.segs[msg.Seg]
	if !seg.granted || seg.ready {
		return
	}
	seg.ready = true
	v.offer.renew(m)
	v.permit(m, int(msg.Seg))
	m.enqueue(v)
	v.finishSending(m)
}

// maxAttempts bounds how often a peer can have this node send a slice again, whatever limit the peer has itself.
const maxAttempts = 64

// onResend handles MsgResend: slices did not land whole.
func (v *serve) onResend(m *Machine, msg *MsgResend) {
	if v.state != serveMoving || int(msg.Seg) >= len(v.segs) {
		return
	}
	seg := v.segs[msg.Seg]
	if !seg.ready || seg.hasInline || msg.Attempt > maxAttempts {
		return
	}
	if seg.tries == nil {
		seg.tries = map[uint32]try{}
	}
	for _, s := range msg.Slices {
		old := seg.tries[s]
		if s >= seg.next || msg.Attempt <= old.attempt {
			continue
		}
		seg.tries[s] = try{msg.Attempt, true}
		if !old.waits {
			seg.again = append(seg.again, s)
		}
	}
	m.enqueue(v)
}

// sliceSent handles the end of a posted slice: its memory is no longer read.
func (v *serve) sliceSent(m *Machine, key SliceKey, cause Cause) {
	if int(key.Seg) >= len(v.segs) || v.segs[key.Seg].flying == 0 {
		return
	}
	seg := v.segs[key.Seg]
	seg.flying--
	m.landedLane(v, seg)
	if v.state != serveMoving {
		return
	}
	switch cause.Reason {
	case OK, PeerGone, Cancelled: // what did not land is asked for again by the consumer
	default:
		v.abort(m, cause)
		return
	}
	if key.Attempt == 0 {
		seg.ended++
	}
	v.offer.renew(m)
	v.finishSending(m)
}

// finishSending says so once every slice of every segment was sent, under the offer's hold.
func (v *serve) finishSending(m *Machine) {
	if v.state != serveMoving || v.sentAll || !v.offer.sealed() || len(v.segs) < v.offer.segments() {
		return
	}
	for _, seg := range v.segs {
		if !seg.granted || seg.ended < seg.slices {
			return
		}
	}
	v.sentAll = true
	v.saySent(m)
}

// saySent tells the consumer that this was all. It sends nothing if the grants say so themselves, because they carry
// every byte and the mark of the last segment.
func (v *serve) saySent(m *Machine) {
	inline := v.segs[len(v.segs)-1].last
	for _, seg := range v.segs {
		inline = inline && seg.hasInline
	}
	if !inline {
		m.send(v.peer, &MsgSent{Xfer: v.leg.id.Xfer, Incarnation: v.offer.incarnation, Segs: uint32(len(v.segs))})
	}
}

// repeat says again what the consumer has not answered.
func (v *serve) repeat(m *Machine) {
	switch {
	case v.peer == nil:
	case v.state == serveParked:
		m.send(v.peer, &MsgParked{Xfer: v.leg.id.Xfer})
	case v.state == serveMoving:
		waiting := true
		for i, seg := range v.segs {
			if seg.granted && (!seg.ready || seg.hasInline) {
				v.grant(m, uint32(i))
			}
			waiting = waiting && seg.granted
		}
		if !waiting || len(v.segs) == 0 {
			m.send(v.peer, &MsgParked{Xfer: v.leg.id.Xfer})
		}
		if v.sentAll {
			v.saySent(m)
		}
	}
}

// repeatFor is repeat for a peer that asks for it; pace bounds how often.
func (v *serve) repeatFor(m *Machine) {
	if v.peer != nil && v.pace.may(m, v.peer) {
		v.repeat(m)
	}
}

// onEnd handles MsgEnd: the consumer says how the take ended.
func (v *serve) onEnd(m *Machine, msg *MsgEnd) {
	was := v.state
	if was == serveDone || was == serveOver {
		return
	}
	v.state, v.cause, v.ended = serveDone, msg.Cause, true
	m.unpark(v)
	v.leave(m)
	o := v.offer
	switch {
	case o == nil || o.ended:
	case o.took(m, msg):
		for _, seg := range v.segs {
			o.bytes += seg.bytes
		}
		o.commit(m, o.enter(v.claim.claimName, v.claim.parts), v.take.Part)
	case was == serveMoving:
		o.fail(m, v.claim)
	}
	if was != serveAborting { // in that state the fence is under way already
		v.stop(m)
	}
}
