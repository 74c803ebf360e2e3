package memory

import (
	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
)

// Hold keeps all regions that a few ranks had when it was made mapped until Release. Resolving is safe for concurrent
// use and needs no lock.
type Hold struct {
	ranks []heldRank
}

type heldRank struct {
	rank    uint32
	regions []*Region // by index; nil: none
}

// Add holds the regions of one more rank. Not concurrent with anything.
func (h *Hold) Add(rank uint32, s *Space) {
	regions := append([]*Region(nil), *s.regions.Load()...)
	for i, r := range regions {
		if r != nil && !r.acquire() {
			regions[i] = nil // removed between the two lines
		}
	}
	h.ranks = append(h.ranks, heldRank{rank, regions})
}

// Run returns the bytes of a run; ok is false when the rank is not held, or had no such region, or a smaller one.
func (h *Hold) Run(r plan.Run) (b []byte, ok bool) {
	return h.Resolve(r.Rank, r.Region, r.Off, r.Len)
}

// Resolve returns the n bytes at off of a rank's region.
func (h *Hold) Resolve(rank uint32, id layout.RegionID, off, n uint64) (b []byte, ok bool) {
	for i := range h.ranks {
		if h.ranks[i].rank != rank {
			continue
		}
		regions := h.ranks[i].regions
		if x := uint64(uint32(id)); x < uint64(len(regions)) && regions[x] != nil && regions[x].id == id {
			b = regions[x].slice(off, n)
		}
		return b, b != nil
	}
	return nil, false
}

// Release ends the hold, once. The bytes it gave must not be touched any more.
func (h *Hold) Release() {
	for _, rank := range h.ranks {
		for _, r := range rank.regions {
			if r != nil {
				r.release()
			}
		}
	}
	h.ranks = nil
}
