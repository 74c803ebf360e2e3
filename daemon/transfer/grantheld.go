package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// What a producer grants is kept until the take is released: block ids, segments with their plans, layouts. It counts against MaxHeld like
// what its node asks for, so that a mad producer ends takes of its own offers, and not the daemon that took.

// What grants take besides block ids, in the 4 bytes of one.
const (
	grantCost = 256 // one, with its segment and the plan of that
	slotCost  = 2   // a segment before it that was not granted yet
	rankCost  = 16
	listCost  = 32
)

// held counts what is kept of a grant.
func (g *MsgGrant) held() int {
	n := grantCost + rankCost*len(g.Ranks) + g.inlineHeld() + heldOf(g.Blocks)
	for _, lists := range g.BlocksBy {
		n += listCost + heldOf(lists)
	}
	return n
}

// inlineHeld counts the bytes that came with a grant, which are kept until they are written.
func (g *MsgGrant) inlineHeld() int { return len(g.Inline) / 4 }

func heldOf(lists []layout.BlockList) int { return listCost*len(lists) + count(lists) }

// keep counts a grant from another node that names these ranks, or says why it is one too many.
func (t *take) keep(m *Machine, g *MsgGrant, ranks []RankLayout) Cause {
	p := t.peer
	n := g.held() + slotCost*max(int(g.Seg)+1-len(t.segs), 0)
	if with := n + p.fresh(ranks); p.held+with > m.cfg.MaxHeld {
		return because(Quota, "key %s: what node %q has granted to node %q, and waits for there, has the size of %d block ids, with this grant %d more; the limit is %d: take less at a time",
			short(t.in.Key), p.node, m.cfg.Node, p.held, with, m.cfg.MaxHeld)
	}
	t.kept += n
	p.held += n
	p.use(ranks)
	return Cause{}
}

// written: a grant's bytes are in place, or on their way there.
func (t *take) written(g *MsgGrant) {
	n := g.inlineHeld()
	t.kept -= n
	t.peer.held -= n
	g.Inline = nil
}

// forgetGrants counts them no more.
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
