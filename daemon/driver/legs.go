package driver

import (
	"fmt"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// leg is what the driver knows of one end of a transfer: its plans and who moves its bytes.
type leg struct {
	segs      map[uint32]*segment
	transport transport.Transport // nil until the first Post or Expect
}

// segment is one plan and the memory it moves in. It serves as transport.Memory of its jobs.
type segment struct {
	plan     *plan.Plan
	sessions Sessions
	src, dst map[uint32]transfer.SessionID // rank -> session, for the ranks of this node
}

func (s *segment) Src(r plan.Run) ([]byte, bool) { return s.resolve(s.src, r) }
func (s *segment) Dst(r plan.Run) ([]byte, bool) { return s.resolve(s.dst, r) }

func (s *segment) resolve(ranks map[uint32]transfer.SessionID, r plan.Run) ([]byte, bool) {
	id := ranks[r.Rank]
	if id == 0 {
		return nil, false
	}
	return s.sessions.Resolve(id, r)
}

// find returns the segment of a leg. On one node both ends have the same plan, and whichever was made first serves both.
func (d *Driver) find(l transfer.Leg, seg uint32) *segment {
	if g := d.legs[l]; g != nil && g.segs[seg] != nil {
		return g.segs[seg]
	}
	if l.Peer == "" {
		if g := d.legs[otherEnd(l)]; g != nil {
			return g.segs[seg]
		}
	}
	return nil
}

func otherEnd(l transfer.Leg) transfer.Leg {
	l.End = transfer.Producer + transfer.Consumer - l.End
	return l
}

func (d *Driver) leg(l transfer.Leg) *leg {
	g := d.legs[l]
	if g == nil {
		g = &leg{segs: map[uint32]*segment{}}
		d.legs[l] = g
	}
	return g
}

// carrier returns the transport of that name, noted as the leg's own so that Fence finds it.
func (d *Driver) carrier(l transfer.Leg, name string) transport.Transport {
	g := d.leg(l)
	if g.transport == nil {
		for _, t := range d.cfg.Transports {
			if t.Name() == name {
				g.transport = t
			}
		}
	}
	return g.transport
}

func (d *Driver) expect(e transfer.Expect) {
	t, seg := d.carrier(e.Leg, e.Transport), d.find(e.Leg, e.Seg)
	if t == nil || seg == nil {
		// The peer chose something that this node does not allow. No slice will land; the machine ends the take.
		d.answer(transfer.SliceLanded{
			Key:   transfer.SliceKey{Leg: e.Leg, Seg: e.Seg},
			Cause: transfer.Cause{Reason: transfer.Unavailable, Text: fmt.Sprintf("transport %q is not on this node's allow-list (transports)", e.Transport)},
		})
		return
	}
	t.Expect(transport.Job{Key: transfer.SliceKey{Leg: e.Leg, Seg: e.Seg}, Plan: seg.plan, Mem: seg})
}

func (d *Driver) post(e transfer.Post) {
	for _, k := range e.Keys {
		t, seg := d.carrier(k.Leg, e.Transport), d.find(k.Leg, k.Seg)
		if t == nil || seg == nil {
			d.answer(transfer.SliceSent{Key: k, Cause: transfer.Cause{Reason: transfer.Unavailable, Text: fmt.Sprintf("transport %q is not there", e.Transport)}})
			continue
		}
		t.Post(transport.Job{Key: k, Plan: seg.plan, Mem: seg})
	}
}

// fence stops a leg. One that never posted or expected anything is fenced as it stands.
func (d *Driver) fence(l transfer.Leg) {
	if g := d.legs[l]; g != nil && g.transport != nil {
		g.transport.Fence(l)
		return
	}
	d.answer(transfer.Fenced{Leg: l})
}
