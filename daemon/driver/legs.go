package driver

import (
	"fmt"
	"sync/atomic"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// leg is what the driver knows of one end of a transfer: its plans, and the transport that moves its bytes.
type leg struct {
	first     *segment            // segment 0
	more      map[uint32]*segment // the other segments; nil if there are none
	transport transport.Transport // nil until the first Post or Expect
	forgotten atomic.Bool         // nobody waits for its plans any more
}

func (g *leg) seg(i uint32) *segment {
	if i == 0 {
		return g.first
	}
	return g.more[i]
}

func (g *leg) put(i uint32, s *segment) {
	if i == 0 {
		g.first = s
		return
	}
	if g.more == nil {
		g.more = map[uint32]*segment{}
	}
	g.more[i] = s
}

// segment is one plan and the memory in which it moves bytes. It is the transport.Memory of its jobs.
type segment struct {
	plan     *plan.Plan
	sessions Sessions
	src, dst []transfer.RankLayout // ranks on other nodes have no session
	payload  []byte                // what was read to ride inside the grant
}

func (s *segment) Src(r plan.Run) ([]byte, bool) { return s.resolve(s.src, r) }
func (s *segment) Dst(r plan.Run) ([]byte, bool) { return s.resolve(s.dst, r) }

func (s *segment) resolve(ranks []transfer.RankLayout, r plan.Run) ([]byte, bool) {
	id := sessionOf(ranks, r.Rank)
	if id == 0 {
		return nil, false
	}
	return s.sessions.Resolve(id, r)
}

// sessionOf returns a rank's session, 0 if it has none here. Ranks mostly lie at the index that is their number.
func sessionOf(ranks []transfer.RankLayout, rank uint32) transfer.SessionID {
	if int(rank) < len(ranks) && ranks[rank].Rank == rank {
		return ranks[rank].Session
	}
	for i := range ranks {
		if ranks[i].Rank == rank {
			return ranks[i].Session
		}
	}
	return 0
}

// find returns a segment of a leg. Within a node both ends have the same plan; whichever was made first serves both.
func (d *Driver) find(l transfer.Leg, seg uint32) *segment {
	if g := d.legs[l]; g != nil && g.seg(seg) != nil {
		return g.seg(seg)
	}
	if l.Peer == "" {
		if g := d.legs[otherEnd(l)]; g != nil {
			return g.seg(seg)
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
		g = new(leg)
		d.legs[l] = g
	}
	return g
}

// carrier returns the transport of that name, and notes it in the leg so that Fence finds it.
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
		// The peer chose a transport that this node does not allow. No slice will land; the machine ends the take.
		d.answer(transfer.SliceLanded{
			Key:   transfer.SliceKey{Leg: e.Leg, Seg: e.Seg},
			Cause: transfer.Cause{Reason: transfer.Unavailable, Text: fmt.Sprintf("transport %q is not on this node's allow-list (transports)", e.Transport)},
		})
		return
	}
	if why := homely(t, e.Leg.Peer); why != "" {
		d.answer(transfer.SliceLanded{
			Key:   transfer.SliceKey{Leg: e.Leg, Seg: e.Seg},
			Cause: transfer.Cause{Reason: transfer.Unavailable, Text: fmt.Sprintf("node %q chose transport %q, by which it cannot send: %s", e.Leg.Peer, e.Transport, why)},
		})
		return
	}
	t.Expect(transport.Job{Key: transfer.SliceKey{Leg: e.Leg, Seg: e.Seg}, Plan: seg.plan, Mem: seg})
}

// homely says why nothing can ever come from a peer by a transport that serves this node alone; "": it is another one.
// That a channel has just ended is no such reason: the machine is about to hear of it, and knows what to make of it.
func homely(t transport.Transport, peer string) string {
	if peer == "" || !t.Probe("").OK {
		return ""
	}
	return t.Probe(peer).Reason
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

func (d *Driver) forget(l transfer.Leg) {
	if g := d.legs[l]; g != nil {
		g.forgotten.Store(true)
		delete(d.legs, l)
		if g.first != nil {
			d.cfg.Payloads.Put(g.first.payload)
		}
		for _, s := range g.more {
			d.cfg.Payloads.Put(s.payload)
		}
	}
}

// fence fences a leg. One that never posted or expected anything is fenced already.
func (d *Driver) fence(l transfer.Leg) {
	if g := d.legs[l]; g != nil && g.transport != nil {
		g.transport.Fence(l)
		return
	}
	d.answer(transfer.Fenced{Leg: l})
}
