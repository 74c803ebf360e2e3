package ring

import (
	"fmt"
	"math/bits"
)

// Sizes is what a session asks for. Every number is a power of two.
type Sizes struct {
	SQ      uint32 // submission entries
	CQ      uint32 // completion entries
	Records uint32 // bytes of the record area in ring_c
	Layers  uint32 // layer slots
}

// MinResult is the room in the results area that every completion can count on: one run for each of 64 groups, so that
// no completion loses what must not be lost. Larger results are cut when the area is short.
const MinResult = ResultSize + 64*RunSize + 16

// fullResult is the largest result that finds room while the client keeps up.
const fullResult = ResultSize + MaxFailed*RunSize + 4096

const page = 4096

// Geometry says where the rings lie in the two memfds. Each area begins on a page; the results area is a power of two.
type Geometry struct {
	Sizes
	Results        uint32 // bytes
	CBytes, DBytes int    // of ring_c and ring_d
	CFixed, DFixed int    // bytes of each used from the start; the rest is touched as records and results come

	sq, records, cq, layers, results int // offsets
}

// NewGeometry lays the rings out. It refuses sizes that are not powers of two.
func NewGeometry(s Sizes) (Geometry, error) {
	for _, f := range []struct {
		name string
		n    uint32
	}{{"sq_entries", s.SQ}, {"cq_entries", s.CQ}, {"arena_bytes", s.Records}, {"layer_slots", s.Layers}} {
		if bits.OnesCount32(f.n) != 1 || f.n > 1<<30 {
			return Geometry{}, fmt.Errorf("%s is %d: must be a power of two up to %d", f.name, f.n, 1<<30)
		}
	}
	if s.Records < page {
		return Geometry{}, fmt.Errorf("arena_bytes is %d: must be at least %d", s.Records, page)
	}
	// Two more than there are entries, for what is lost where the area wraps.
	need := uint64(s.CQ+2)*MinResult + 2*fullResult
	if need > 1<<31 {
		return Geometry{}, fmt.Errorf("cq_entries is %d: too many", s.CQ)
	}
	g := Geometry{Sizes: s, Results: 1 << bits.Len64(need-1)}

	g.sq = page
	g.CFixed = pages(g.sq + int(s.SQ)*SQESize)
	g.records = g.CFixed
	g.CBytes = g.records + int(s.Records)

	g.cq = page
	g.layers = pages(g.cq + int(s.CQ)*CQESize)
	g.DFixed = pages(g.layers + int(s.Layers)*LayerSlotSize)
	g.results = g.DFixed
	g.DBytes = pages(g.results + int(g.Results))
	return g, nil
}

// Memory returns the most memory that the rings can cost this process: all of both memfds, whose pages count to whoever
// touches them first, and what Completions keeps for each entry.
func (g *Geometry) Memory() uint64 {
	const entry = 1 + 8 + 8 // marked, ends, charges
	return uint64(g.CBytes) + uint64(g.DBytes) + uint64(g.CQ)*entry
}

func pages(n int) int { return (n + page - 1) / page * page }

// Table is WELCOME's table of rings.
func (g *Geometry) Table() []Desc {
	return []Desc{
		{Kind: KindSQ, Memfd: 0, Offset: uint64(g.sq), Entries: g.SQ, EntrySize: SQESize},
		{Kind: KindCQ, Memfd: 1, Offset: uint64(g.cq), Entries: g.CQ, EntrySize: CQESize},
		{Kind: KindRecords, Memfd: 0, Offset: uint64(g.records), Entries: g.Sizes.Records, EntrySize: 1},
		{Kind: KindResults, Memfd: 1, Offset: uint64(g.results), Entries: g.Results, EntrySize: 1},
		{Kind: KindLayers, Memfd: 1, Offset: uint64(g.layers), Entries: g.Layers, EntrySize: LayerSlotSize},
	}
}

func area(b []byte, off, n int) []byte { return b[off : off+n : off+n] }
