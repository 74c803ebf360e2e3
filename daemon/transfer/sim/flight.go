package sim

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// flight is a slice on its way.
type flight struct {
	key  transfer.SliceKey
	from *leg
	to   *Node
	sent bool // its SliceSent was reported
	data []byte
}

// post sends a slice: it is read a little later, and lands later still.
func (n *Node) post(key transfer.SliceKey) {
	c := n.c
	l := n.legs[key.Leg]
	if l == nil || l.asked {
		c.fail("node %s: slice %v posted on a fenced leg", n.name, key)
		return
	}
	f := &flight{key: key, from: l, to: n}
	if key.Peer != "" {
		f.to = c.byName[key.Peer]
	}
	l.flights = append(l.flights, f)
	n.later(c.delay(), func() { f.read(n) })
}

// read takes the bytes from the source, unless a fence was faster.
func (f *flight) read(n *Node) {
	if f.sent {
		return
	}
	c := n.c
	f.data = n.read(n.find(f.key.Leg, f.key.Seg), int(f.key.Slice))
	cause := transfer.Cause{}
	lost := !c.calm && c.rng.hit(c.faults.lost) || c.next.use(&c.next.lose)
	if f.key.Peer != "" && !c.net.live(n.name, f.to.name, f.key.Epoch) {
		lost = true
	}
	if lost && f.key.Peer != "" && c.rng.hit(50) {
		cause = transfer.Cause{Reason: transfer.PeerGone, Text: "link closed"}
	}
	if cause.Reason == transfer.OK {
		cause = c.failing()
	}
	if f.key.Peer == "" {
		// One copy serves both ends: it cannot be lost on the way.
		switch {
		case cause.Reason != transfer.OK:
			f.fails(n, cause)
		case c.opts.Ragged && c.rng.hit(50):
			f.report(n, cause)
			f.land(n.name, f.to)
		default:
			f.land(n.name, f.to)
			f.report(n, cause)
		}
		return
	}
	f.report(n, cause)
	if lost {
		f.lost(n.name)
		return
	}
	d := c.delay()
	if !c.calm && c.rng.hit(c.faults.lateSlice) {
		d += c.rng.span(0, 400*ms)
	}
	from := n.name
	f.to.later(d, func() { f.land(from, f.to) })
}

// lost tells the other end that a link is gone. It does not always notice.
func (f *flight) lost(from string) {
	c := f.to.c
	if c.rng.hit(60) {
		f.to.later(c.delay(), func() {
			if f.to.views[from] == f.key.Epoch {
				f.to.step(transfer.LinkLost{Node: from, Epoch: f.key.Epoch})
			}
		})
	}
}

func (f *flight) report(n *Node, cause transfer.Cause) {
	f.sent = true
	f.from.flights = slices.DeleteFunc(f.from.flights, func(o *flight) bool { return o == f })
	n.step(transfer.SliceSent{Key: f.key, Cause: cause})
}

// cancel ends a slice because of a fence.
func (f *flight) cancel(n *Node) {
	if f.sent {
		return
	}
	f.fails(n, transfer.Cause{Reason: transfer.Cancelled, Text: "fenced"})
}

// fails ends a slice before anything of it has landed. One within a node ends at both ends.
func (f *flight) fails(n *Node, cause transfer.Cause) {
	f.report(n, cause)
	if f.key.Peer == "" {
		key := f.key
		key.End = transfer.Consumer
		n.step(transfer.SliceLanded{Key: key, Cause: cause})
	}
}

// land puts the bytes into the destination, if that end expects them.
func (f *flight) land(from string, to *Node) {
	c := to.c
	key := f.key
	key.End = transfer.Consumer
	if key.Peer != "" {
		key.Peer = from
	}
	l := to.legs[key.Leg]
	if l == nil || !l.expects[key.Seg] || l.fenced && !c.opts.Late {
		return
	}
	seg := to.find(key.Leg, key.Seg)
	if seg == nil || int(key.Slice) >= seg.plan.Slices() || seg.plan.Slice(int(key.Slice)).Bytes != uint64(len(f.data)) {
		return // the plan has no such slice
	}
	cause := c.failing()
	data := f.data
	switch {
	case c.calm || cause.Reason != transfer.OK:
	case c.rng.hit(c.faults.corrupt) || c.next.use(&c.next.corrupt):
		cause = transfer.Cause{Reason: transfer.Corrupt, Text: "checksum does not agree"}
		data = slices.Clone(data)
		for i := range data {
			data[i] ^= 0x55
		}
	case key.Peer != "" && c.rng.hit(c.faults.torn):
		cause = transfer.Cause{Reason: transfer.PeerGone, Text: "link closed half-way"}
		data = data[:len(data)/2/cell*cell]
	}
	to.write(key.Leg, seg, int(key.Slice), data)
	to.step(transfer.SliceLanded{Key: key, Cause: cause})
	if c.opts.Late && c.rng.hit(20) {
		to.later(c.rng.span(0, 300*ms), func() { to.write(key.Leg, seg, int(key.Slice), data) })
	}
}
