package transfer

import (
	"maps"
	"slices"
)

// receiving is a segment at the consumer's end.
type receiving struct {
	grant     *MsgGrant // nil once its take has shrunk
	producers []RankLayout
	planned   bool
	open      bool // expected, or inline data being written
	slices    uint32
	bytes     uint64
	rankBytes map[uint32]uint64
	marks     []Mark
	mark      int      // marks before this index are in place
	upTo      uint32   // slices before this number are in place
	in        []uint64 // bit per slice: in place
	in1       [1]uint64
	count     uint32           // slices in place
	tries     map[uint32]asked // slice -> what was asked for again
}

// asked counts the further attempts at a slice.
type asked struct {
	latest  uint16 // number of the latest attempt
	spoiled uint16 // how many of them were asked for because what came was not what was sent
}

func (r *receiving) has(slice uint32) bool { return r.in[slice/64]&(1<<(slice%64)) != 0 }

// granted handles MsgGrant: the first one, that of a further segment, or a copy.
func (m *Machine) granted(p *peer, g *MsgGrant) {
	t := m.takeOf(p, g.Xfer)
	switch {
	case t == nil:
		m.disown(p, g.Xfer)
		return
	case t.phase == phaseOver:
		if t.end != nil {
			m.send(p, t.end)
		}
		return
	case t.phase != phaseAsking && t.phase != phaseMoving:
		return
	case m.stopping && t.get != nil && !t.granted: // see onFound
		return
	}
	if t.incarnation != 0 && t.incarnation != g.Incarnation && !m.cfg.Broken.Incarnation {
		t.fail(m, Failed, because(Expired, "key %s: the offer was replaced by another one while it was being taken", short(t.in.Key)))
		return
	}
	if n := len(t.segs); int(g.Seg) < n && t.segs[g.Seg] != nil {
		if t.segs[g.Seg].open && !g.HasInline {
			m.send(p, &MsgGo{Xfer: g.Xfer, Seg: g.Seg}) // the producer has not seen the last one
		}
		return
	}
	t.accept(m, g)
}

// maxSegs bounds the segments of an offer. In every take each segment is planned, granted and answered by itself, and
// is looked at whenever another one moves on.
const maxSegs = 4096

// accept prepares for a segment.
func (t *take) accept(m *Machine, g *MsgGrant) {
	var producers []RankLayout
	from := m.serves[legOf(nil, g.Xfer, Producer)]
	if t.peer == nil {
		if from == nil || from.state != serveMoving {
			return // it ended meanwhile, and says so
		}
		producers = from.offer.layouts
	} else if producers = m.resolve(t.peer, g.Xfer, Consumer, g.Ranks); producers == nil {
		return // the grant will be repeated
	}
	if cause := m.agree(producers, t.layouts); cause.Reason != OK {
		t.fail(m, Failed, cause)
		return
	}
	if t.in.Layered && !g.Layered { // its slices would come in no order of layers, and not tell which layer they are of
		t.fail(m, Failed, because(Incompatible, "key %s: node %q grants segment %d all at once to a take layer by layer: the daemons' versions do not agree",
			short(t.in.Key), t.node(m), g.Seg))
		return
	}
	if g.Seg >= maxSegs {
		t.fail(m, Failed, because(Invalid, "node %q announced segment %d; at most %d are served", t.node(m), g.Seg, maxSegs))
		return
	}
	if t.peer != nil {
		if cause := t.keep(m, g, producers); cause.Reason != OK {
			t.fail(m, Failed, cause)
			return
		}
	}
	t.countLanding(phaseMoving)
	t.phase, t.engine, t.incarnation = phaseMoving, g.Engine, g.Incarnation
	m.disarm(&t.resend)
	if t.segs == nil {
		t.segs = t.segs1[:0]
	}
	for len(t.segs) <= int(g.Seg) {
		t.segs = append(t.segs, nil)
	}
	seg := &t.seg0
	if g.Seg > 0 {
		seg = new(receiving)
	}
	seg.grant, seg.producers = g, producers
	t.segs[g.Seg] = seg
	if !t.granted {
		t.granted = true
		if t.in.LayerSlot != NoSlot {
			m.emit(Granted{Session: t.by.id, Slot: t.in.LayerSlot, UserData: t.user})
		}
		m.openLeg(&t.leg)
	}
	dst := t.in.Blocks
	if g.Seg > 0 || !g.Last {
		r := spansOf(g.Blocks, g.BlocksBy)
		t.covered = append(t.covered, r)
		if t.peer != nil {
			dst = r.clip(t.layouts, dst)
		}
	}
	if t.peer != nil {
		if g.HasInline && g.Last && g.Seg == 0 && t.mayOpen() {
			m.emit(Rouse{Session: t.by.id, UserData: t.user})
		}
		m.emit(MakePlan{
			Leg: t.leg.id, Seg: g.Seg, Producer: producers, Consumer: t.layouts,
			Src: g.Blocks, SrcBy: g.BlocksBy, Dst: dst, User: t.by.user, Layered: g.Layered, Whole: g.Whole,
		})
		return
	}
	sent := from.segs[g.Seg]
	seg.describe(sent.slices, sent.bytes, sent.rankBytes, sent.marks)
	t.open(m, g.Seg)
}

func (r *receiving) describe(slices uint32, bytes uint64, ranks map[uint32]uint64, marks []Mark) {
	r.planned, r.slices, r.bytes, r.rankBytes, r.marks = true, slices, bytes, ranks, marks
	if r.in = r.in1[:]; slices > 64 {
		r.in = make([]uint64, (slices+63)/64)
	}
}

// planned handles this end's plan of a segment, which has to agree with the producer's.
func (t *take) planned(m *Machine, ev *Planned) {
	if t.phase != phaseMoving || int(ev.Seg) >= len(t.segs) || t.segs[ev.Seg] == nil || t.segs[ev.Seg].planned {
		return
	}
	seg := t.segs[ev.Seg]
	switch g := seg.grant; {
	case ev.Cause.Reason != OK:
		t.fail(m, Failed, ev.Cause)
		return
	case ev.Slices != g.Slices || ev.Bytes != g.Bytes:
		t.fail(m, Failed, because(Incompatible, "key %s: node %q plans %d slices of %d bytes, this node %d of %d: the daemons' versions do not agree",
			short(t.in.Key), t.peer.node, g.Slices, g.Bytes, ev.Slices, ev.Bytes))
		return
	}
	if cause := t.keepPlan(m, ev); cause.Reason != OK {
		t.fail(m, Failed, cause)
		return
	}
	seg.describe(ev.Slices, ev.Bytes, ev.RankBytes, ev.Marks)
	t.lack(ev.Missing)
	t.open(m, ev.Seg)
}

// open lets a segment's bytes come, once every rank's progress has reached what the take waits for.
func (t *take) open(m *Machine, i uint32) {
	seg := t.segs[i]
	for _, s := range t.ranks {
		if !m.progressedTo(s, t.in.After, t) {
			return
		}
	}
	seg.open = true
	switch {
	case seg.grant.HasInline:
		m.emit(WriteInline{Leg: t.leg.id, Seg: i, Data: seg.grant.Inline, CRC: seg.grant.InlineCRC})
		t.written(seg.grant)
		return
	case seg.slices > 0:
		m.emit(Expect{Leg: t.leg.id, Seg: i, Transport: seg.grant.Transport})
	}
	m.send(t.peer, &MsgGo{Xfer: t.leg.id.Xfer, Seg: i})
	t.progressLayers(m)
	t.tryCommit(m)
}

// mayOpen says whether every rank's progress has reached what the take waits for.
func (t *take) mayOpen() bool {
	return !slices.ContainsFunc(t.ranks, func(s *session) bool { return s.progress < t.in.After })
}

// progressed opens the segments that waited for a rank's progress.
func (t *take) progressed(m *Machine) {
	if t.phase != phaseMoving {
		return
	}
	for i, seg := range t.segs {
		if seg != nil && seg.planned && !seg.open && t.phase == phaseMoving {
			t.open(m, uint32(i))
		}
	}
}

// inlineWritten handles the end of a segment that came with its grant.
func (t *take) inlineWritten(m *Machine, ev *InlineWritten) {
	if t.phase != phaseMoving || int(ev.Seg) >= len(t.segs) || t.segs[ev.Seg] == nil || !t.segs[ev.Seg].open {
		return
	}
	if ev.Cause.Reason != OK {
		t.fail(m, Failed, ev.Cause)
		return
	}
	seg := t.segs[ev.Seg]
	for i := range seg.in {
		seg.in[i] = ^uint64(0)
	}
	seg.count = seg.slices
	t.progressLayers(m)
	t.tryCommit(m)
}

// landed handles the end of a slice's attempt at this end.
func (t *take) landed(m *Machine, key SliceKey, cause Cause) {
	if (t.phase != phaseMoving && t.phase != phaseCommitting) || int(key.Seg) >= len(t.segs) || t.segs[key.Seg] == nil {
		return
	}
	seg := t.segs[key.Seg]
	if cause.Reason != OK && cause.Reason != Corrupt && cause.Reason != PeerGone && cause.Reason != Cancelled {
		t.fail(m, Failed, cause)
		return
	}
	if !seg.open || key.Slice >= seg.slices {
		return
	}
	word, bit := &seg.in[key.Slice/64], uint64(1)<<(key.Slice%64)
	t.stalls = 0
	if t.hasty && t.sent {
		t.settleLater(m)
	}
	switch {
	case cause.Reason == OK:
		if *word&bit == 0 {
			*word |= bit
			seg.count++
			t.progressLayers(m)
			t.tryCommit(m)
		}
	case cause.Reason == Cancelled: // the producer's end was fenced: it will say why
	default:
		if *word&bit != 0 && !m.cfg.Broken.LateSlice {
			// An earlier attempt came late and spoiled what a later one had put in place.
			*word &^= bit
			seg.count--
			seg.mark, seg.upTo = 0, 0
			if t.layersReady > 0 {
				t.fail(m, Failed, because(Corrupt, "key %s: a late copy of a slice spoiled a layer that was reported in place: %s", short(t.in.Key), cause.Text))
				return
			}
		}
		if *word&bit == 0 && key.Attempt >= uint32(seg.tries[key.Slice].latest) && t.phase == phaseMoving {
			t.again(m, key.Seg, []uint32{key.Slice}, cause)
		}
	}
}

// again asks for slices once more. Slices that came spoiled have a limit, since whatever spoils them may do so for
// ever. Slices that were lost on their way, perhaps with the request for them, come when there is a way again. Their
// limits are the take's deadline, and how often a producer sends them (maxAttempts).
func (t *take) again(m *Machine, i uint32, lost []uint32, cause Cause) {
	seg := t.segs[i]
	if seg.tries == nil {
		seg.tries = map[uint32]asked{}
	}
	byAttempt := map[uint16][]uint32{}
	for _, s := range lost {
		a := seg.tries[s]
		a.latest++
		if cause.Reason == Corrupt {
			a.spoiled++
		}
		if int(a.spoiled) > m.cfg.Retries || a.latest > maxAttempts {
			t.fail(m, Failed, because(cause.Reason, "slice %d of segment %d did not arrive whole in %d attempts: %s", s, i, a.latest, cause.Text))
			return
		}
		seg.tries[s] = a
		byAttempt[a.latest] = append(byAttempt[a.latest], s)
	}
	for _, n := range slices.Sorted(maps.Keys(byAttempt)) {
		m.send(t.peer, &MsgResend{Xfer: t.leg.id.Xfer, Seg: i, Attempt: uint32(n), Slices: byAttempt[n]})
	}
}
