package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// What a producer grants is kept until the take is released: block ids, segments with their plans, layouts. Together
// with what the producer's node asks for here it counts against MaxHeld. So a mad producer ends takes of its own
// offers, and not the daemon that took. What its segments lack is kept as a set of the take's own block ids,
// with at most a quarter more set aside (lack).

// What grants take besides block ids, in units of 4 bytes, the size of a block id.
const (
	grantCost = 384 // a grant, with its segment and the smallest plan of that; the producer's end counts it, too
	slotCost  = 2   // an earlier segment that was not granted yet
	rankCost  = 16
	listCost  = 32
	markCost  = 4
	sliceCost = 8 // whether it is in place, and how often it was asked for
)

// held counts what is kept of a grant.
func (g *MsgGrant) held() int {
	n := grantCost + rankCost*len(g.Ranks) + g.inlineHeld() + heldOf(g.Blocks)
	for _, lists := range g.BlocksBy {
		n += listCost + heldOf(lists)
	}
	return n
}

// held counts what is kept of a plan. A few block ids can make a large plan: it grows with the views of both ends, and
// with the holes in them.
func (ev *Planned) held() int {
	return int(ev.Size)/4 + markCost*len(ev.Marks) + rankCost*len(ev.RankBytes) + sliceCost*int(ev.Slices)
}

// inlineHeld counts the bytes that came with a grant, which are kept until they are written.
func (g *MsgGrant) inlineHeld() int { return len(g.Inline) / 4 }

func heldOf(lists []layout.BlockList) int { return listCost*len(lists) + layout.CountIDs(lists) }

// keep counts a grant from another node that names these ranks, or says why there is no room for it.
func (t *take) keep(m *Machine, g *MsgGrant, ranks []RankLayout) Cause {
	p := t.peer
	n := g.held() + slotCost*max(int(g.Seg)+1-len(t.segs), 0)
	if cause := t.mayKeep(m, n+p.fresh(ranks)); cause.Reason != OK {
		return cause
	}
	t.kept += n
	p.held += n
	p.use(ranks)
	return Cause{}
}

// keepPlan counts the plan of a grant from another node, once the plan is there.
func (t *take) keepPlan(m *Machine, ev *Planned) Cause {
	n := ev.held()
	if cause := t.mayKeep(m, n); cause.Reason != OK {
		return cause
	}
	t.kept += n
	t.peer.held += n
	return Cause{}
}

func (t *take) mayKeep(m *Machine, n int) Cause {
	cause := m.mayHold(t.peer, n)
	if cause.Reason != OK {
		cause.Text = "key " + short(t.in.Key) + ": " + cause.Text
	}
	return cause
}

// written stops counting a grant's bytes: they are in place, or on their way there.
func (t *take) written(g *MsgGrant) {
	n := g.inlineHeld()
	t.kept -= n
	t.peer.held -= n
	g.Inline = nil
}

// forgetGrants stops counting all grants of the take.
func (t *take) forgetGrants() {
	if t.kept == 0 {
		return
	}
	for _, seg := range t.segs {
		if seg != nil {
			t.peer.leave(seg.producers)
		}
	}
	t.peer.held -= t.kept
	t.kept = 0
}
