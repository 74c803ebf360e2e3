package transfer

import "github.com/kvpipe/kvpipe/daemon/layout"

// known is a layout of another node. The layouts that a peer sent lately have bounds of their own (maxKnown,
// maxKnownCost). A layout that takes use is kept as long as they are, and counts against MaxHeld.
type known struct {
	layout *layout.Layout
	cost   int // in units of 4 bytes, the size of a block id
	uses   int // by ranks of takes, at either end
}

// What a layout takes, in units of 4 bytes.
const (
	layoutCost = 64
	viewCost   = 32
	fieldCost  = 96 // of the fingerprint
)

func newKnown(l *layout.Layout) *known {
	return &known{layout: l, cost: layoutCost + viewCost*len(l.Views()) + fieldCost*len(l.Fingerprint())}
}

// fresh is how much the layouts of those ranks take that no other take uses yet. A layout that several of the ranks
// share may count for each.
func (p *peer) fresh(ranks []RankLayout) int {
	n := 0
	for _, r := range ranks {
		if r.known.uses == 0 {
			n += r.known.cost
		}
	}
	return n
}

// use notes that a take uses the layouts of these ranks, leave that it no longer does.
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
