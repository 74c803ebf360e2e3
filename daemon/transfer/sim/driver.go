package sim

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

const fake = "fake" // the only transport

// leg is what a driver knows of one end of a transfer.
type leg struct {
	id      transfer.Leg
	segs    map[uint32]*segment
	expects map[uint32]bool
	flights []*flight // posted from here and not yet reported
	asked   bool      // Fence was asked for
	fenced  bool
}

type segment struct {
	plan     *plan.Plan
	src, dst map[uint32]*Session
	payload  []byte // what was read to ride inside a grant
}

func (n *Node) leg(id transfer.Leg) *leg {
	l := n.legs[id]
	if l == nil {
		l = &leg{id: id, segs: map[uint32]*segment{}, expects: map[uint32]bool{}}
		n.legs[id] = l
	}
	return l
}

// find returns a segment's plan. Within one node the producer's plan serves both ends.
func (n *Node) find(id transfer.Leg, seg uint32) *segment {
	if l := n.legs[id]; l != nil && l.segs[seg] != nil {
		return l.segs[seg]
	}
	if id.Peer == "" && id.End == transfer.Consumer {
		return n.find(other(id), seg)
	}
	return nil
}

func other(id transfer.Leg) transfer.Leg {
	id.End = transfer.Producer + transfer.Consumer - id.End
	return id
}

func (n *Node) makePlan(e transfer.MakePlan) {
	l := n.leg(e.Leg)
	if l.asked {
		n.c.fail("node %s: plan for the fenced leg %v", n.name, e.Leg)
	}
	p, err := plan.New(plan.Request{
		Producer: ranks(e.Producer, e.Src, e.SrcBy), Consumer: ranks(e.Consumer, e.Dst, nil),
		Layered: e.Layered, Whole: e.Whole, SliceBytes: n.c.slice, SameNode: e.Leg.Peer == "",
		SameSession: func(s, d uint32) bool { return false },
	})
	ev := transfer.Planned{Leg: e.Leg, Seg: e.Seg}
	if err != nil {
		ev.Cause = transfer.Cause{Reason: transfer.Incompatible, Text: err.Error()}
	} else {
		ev.Cause = n.c.failing()
	}
	if ev.Cause.Reason != transfer.OK {
		n.event(n.c.delay(), ev)
		return
	}
	l.segs[e.Seg] = &segment{plan: p, src: n.owners(e.Producer), dst: n.owners(e.Consumer)}
	ev.Transport, ev.Slices, ev.Bytes = fake, uint32(p.Slices()), p.Bytes()
	ev.RankBytes, ev.Missing, ev.Size = p.RankBytes(), p.Missing(), uint32(p.Size())
	ev.Inline = e.Leg.Peer != "" && p.Bytes() <= n.c.inline
	for _, m := range p.Marks() {
		ev.Marks = append(ev.Marks, transfer.Mark(m))
	}
	n.event(n.c.delay(), ev)
}

func ranks(in []transfer.RankLayout, all []layout.BlockList, by map[uint32][]layout.BlockList) []plan.Rank {
	out := make([]plan.Rank, len(in))
	for i, r := range in {
		blocks, ok := by[r.Rank]
		if !ok {
			blocks = all
		}
		out[i] = plan.Rank{Rank: r.Rank, Layout: r.Layout, Blocks: blocks}
	}
	return out
}

func (n *Node) owners(in []transfer.RankLayout) map[uint32]*Session {
	out := map[uint32]*Session{}
	for _, r := range in {
		if r.Session != 0 {
			out[r.Rank] = n.session(r.Session)
		}
	}
	return out
}

func (n *Node) expect(e transfer.Expect) {
	l := n.leg(e.Leg)
	if l.asked {
		n.c.fail("node %s: slices expected on the fenced leg %v", n.name, e.Leg)
	}
	if e.Transport != fake { // only a mad node says another
		cause := transfer.Cause{Reason: transfer.Unavailable, Text: "no transport of that name is here"}
		n.event(0, transfer.SliceLanded{Key: transfer.SliceKey{Leg: e.Leg, Seg: e.Seg}, Cause: cause})
		return
	}
	l.expects[e.Seg] = true
}

func (n *Node) forget(id transfer.Leg) {
	if l := n.legs[id]; l == nil || !l.fenced && !n.c.opts.Broken.Fence {
		n.c.fail("node %s: leg %v forgotten before its fence", n.name, id)
	}
	if !n.c.opts.Broken.Fence {
		for _, seg := range n.legs[id].segs {
			reuse(seg.payload)
		}
		delete(n.legs, id)
	}
}

// reuse does to a payload what its buffer's next user would. Whoever still sends or writes it sends or writes wrong
// bytes.
func reuse(payload []byte) {
	for i := range payload {
		payload[i] ^= 0xa5
	}
}

// fence takes effect after a while. It may fail first and succeed later.
func (n *Node) fence(id transfer.Leg) {
	l := n.leg(id)
	if l.asked {
		n.c.fail("node %s: leg %v fenced twice", n.name, id)
	}
	l.asked = true
	c := n.c
	d, fails := c.next.fenced()
	if !c.calm && c.rng.hit(c.faults.fenceSlow) {
		d = c.rng.span(0, 200*ms)
	}
	if !c.calm && c.rng.hit(c.faults.fenceFails) {
		n.event(d, transfer.Fenced{Leg: id, Cause: transfer.Cause{Reason: transfer.Unavailable, Text: "device does not answer"}})
		d += c.rng.span(10*ms, 500*ms)
	}
	if fails {
		n.event(0, transfer.Fenced{Leg: id, Cause: transfer.Cause{Reason: transfer.Unavailable, Text: "device does not answer"}})
	}
	n.later(d, func() {
		l.fenced = true
		for _, f := range slices.Clone(l.flights) {
			f.cancel(n)
		}
		if p := n.legs[other(id)]; p != nil && id.Peer == "" && id.End == transfer.Consumer {
			for _, f := range slices.Clone(p.flights) {
				f.cancel(n)
			}
		}
		n.step(transfer.Fenced{Leg: id})
	})
}

func (n *Node) readInline(e transfer.ReadInline) {
	ev := transfer.InlineRead{Leg: e.Leg, Seg: e.Seg}
	if l := n.legs[e.Leg]; l == nil || l.asked {
		n.c.fail("node %s: inline read of the fenced leg %v", n.name, e.Leg)
		return
	}
	seg := n.find(e.Leg, e.Seg)
	for i := range seg.plan.Slices() {
		ev.Data = append(ev.Data, n.read(seg, i)...)
	}
	seg.payload = ev.Data
	ev.Cause = n.c.failing()
	n.event(n.c.delay(), ev)
}

func (n *Node) writeInline(e transfer.WriteInline) {
	ev := transfer.InlineWritten{Leg: e.Leg, Seg: e.Seg}
	if l := n.legs[e.Leg]; l == nil || l.asked {
		n.c.fail("node %s: inline write of the fenced leg %v", n.name, e.Leg)
		return
	}
	defer reuse(e.Data)
	seg, data := n.find(e.Leg, e.Seg), e.Data
	if uint64(len(data)) != seg.plan.Bytes() {
		if n.c.mad == nil {
			n.c.fail("node %s: inline payload of %d bytes for a plan of %d", n.name, len(data), seg.plan.Bytes())
			return
		}
		ev.Cause = transfer.Cause{Reason: transfer.Corrupt, Text: "not as long as its plan"}
		n.event(n.c.delay(), ev)
		return
	}
	for i := range seg.plan.Slices() {
		size := seg.plan.Slice(i).Bytes
		n.write(e.Leg, seg, i, data[:size])
		data = data[size:]
	}
	ev.Cause = n.c.failing()
	n.event(n.c.delay(), ev)
}

// read gathers a slice from its source blocks, which must be held by an offer.
func (n *Node) read(seg *segment, slice int) []byte {
	var data []byte
	for _, r := range seg.plan.Src(slice, nil) {
		s := seg.src[r.Rank]
		for off := int(r.Off); off < int(r.Off+r.Len); off += cell {
			b := s.mem.blockAt(off)
			switch o := s.src[b]; {
			case o == nil || s.drained || s.invalid:
				n.c.fail("node %s: block %d of session %d (%s rank %d) was read although no offer holds it", n.name, b, s.id, s.eng.name, s.rank)
			case o.over(s):
				n.c.fail("node %s: block %d of session %d (%s rank %d) was read after it was told that op %d (%s) reads it no more", n.name, b, s.id, s.eng.name, s.rank, o.tag, o.kind)
			}
		}
		data = append(data, s.mem.bytes[r.Off:r.Off+r.Len]...)
	}
	return data
}

// write scatters a slice, or the first part of it, into its destination blocks, which must be held by a take.
func (n *Node) write(id transfer.Leg, seg *segment, slice int, data []byte) {
	for _, r := range seg.plan.Dst(slice, nil) {
		s := seg.dst[r.Rank]
		for off := int(r.Off); off < int(r.Off+r.Len) && len(data) > 0; off += cell {
			b := s.mem.blockAt(off)
			switch o := s.dst[b]; {
			case s.drained || s.invalid:
				n.c.fail("node %s: a byte landed in session %d, which was drained", n.name, s.id)
			case o == nil:
				n.c.fail("node %s: transfer %x: a byte landed in block %d of session %d (%s rank %d), which no take holds", n.name, id.Xfer, b, s.id, s.eng.name, s.rank)
			case o.wrong != "":
				n.c.fail("node %s: a byte landed for op %d (%s of %s), and %s", n.name, o.tag, o.kind, o.about(), o.wrong)
			case o.over(s):
				n.c.fail("node %s: a byte landed in block %d of session %d (%s rank %d) after it was told that none of op %d (%s) does", n.name, b, s.id, s.eng.name, s.rank, o.tag, o.kind)
			case o.leg != 0 && o.leg != id.Xfer:
				n.c.fail("node %s: a byte of transfer %x landed in block %d of %s, which transfer %x holds", n.name, id.Xfer, b, s.eng.name, o.leg)
			case s.progress < o.after && s.open:
				n.c.fail("node %s: block %d of %s rank %d was written at progress %#x, before %#x", n.name, b, s.eng.name, s.rank, s.progress, o.after)
			default:
				o.leg = id.Xfer
			}
			copy(s.mem.bytes[off:off+cell], data)
			data = data[min(cell, len(data)):]
		}
	}
}

// moveNow does a whole take within the node at once. It may also stop half-way, and then says that it did not do it.
func (n *Node) moveNow(e *transfer.MoveNow) transfer.MovedNow {
	c := n.c
	p, err := plan.New(plan.Request{
		Producer: ranks(e.Producer, e.Src, nil), Consumer: ranks(e.Consumer, e.Dst, nil), Whole: e.Whole, SliceBytes: c.slice, SameNode: true,
	})
	if err != nil || len(p.Missing()) > 0 {
		return transfer.MovedNow{}
	}
	torn := !c.calm && c.rng.hit(c.faults.torn) || c.next.use(&c.next.corrupt)
	seg := &segment{plan: p, src: n.owners(e.Producer), dst: n.owners(e.Consumer)}
	for i := range p.Slices() {
		if torn && i == p.Slices()/2 {
			return transfer.MovedNow{}
		}
		n.write(transfer.Leg{}, seg, i, n.read(seg, i))
	}
	c.movedNow++
	return transfer.MovedNow{OK: true, Bytes: p.Bytes()}
}
