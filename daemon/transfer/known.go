package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// known is a layout of another node. Those that it was told of lately are bounded by themselves (maxKnown); one that takes go by is kept as
// long as they are, and counts against MaxHeld.
type known struct {
	layout *layout.Layout
	cost   int // in block ids of 4 bytes
	uses   int // by ranks of takes, at either end
}

// What a layout takes, in the 4 bytes of a block id.
const (
	layoutCost = 64
	viewCost   = 32
	fieldCost  = 96 // of the fingerprint
)

func newKnown(l *layout.Layout) *known {
	return &known{layout: l, cost: layoutCost + viewCost*len(l.Views()) + fieldCost*len(l.Fingerprint())}
}

// fresh is how much the layouts of those ranks take that no other take goes by; one that several of them share may count for each.
func (p *peer) fresh(ranks []RankLayout) int {
	n := 0
	for _, r := range ranks {
		if r.known.uses == 0 {
			n += r.known.cost
		}
	}
	return n
}

// use notes that a take goes by the layouts of these ranks, leave that it does so no more.
func (p *peer) use(ranks []RankLayout) {
	for _, r := range ranks {
		if r.known.uses++; r.known.uses == 1 {
			p.held += r.known.cost
		}
	}
}

func (p *peer) leave(ranks []RankLayout) {
	for _, r := range ranks {
		if r.known.uses--; r.known.uses == 0 {
			p.held -= r.known.cost
		}
	}
}
