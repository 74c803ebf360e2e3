// Package plan turns two layouts and two block lists into bytes to move. A plan is the intersection, per layer, part
// and group, of the producer's and the consumer's token ranges and head ranges, laid out as one canonical stream of
// bytes that both daemons derive alike from the same input. The stream is cut into slices of bounded size; the
// runs of a slice (where its bytes lie at the source, at the destination, or as pairs of both) are produced lazily.
// Nothing is allocated per block. Pure: no I/O, no clock, no address.
package plan

import (
	"fmt"
	"sort"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// Rank is one rank of one side with the block lists that apply to it.
type Rank struct {
	Rank   uint32
	Layout *layout.Layout
	Blocks []layout.BlockList
}

// Request is the input of New.
type Request struct {
	Producer, Consumer []Rank
	Layered            bool                               // order by layer, slices never cross a layer
	Whole              bool                               // every consumer element must have a producer element, else an error that names the first that has none
	SliceBytes         uint64                             // 0: 1 MiB
	SameNode           bool                               // both sides' regions are this node's: an overlap of source and destination is refused
	SameSession        func(srcRank, dstRank uint32) bool // with SameNode: do these ranks' region ids name the same memory
}

// Run is a contiguous piece of one rank's region.
type Run struct {
	Rank   uint32
	Region layout.RegionID
	Off    uint64
	Len    uint64
}

// Hull returns the smallest run that holds r and o; ok is false when they lie in different regions. Who needs the memory of many
// runs looks for that of their hull, once.
func (r Run) Hull(o Run) (hull Run, ok bool) {
	if r.Rank != o.Rank || r.Region != o.Region {
		return r, false
	}
	end := max(r.Off+r.Len, o.Off+o.Len)
	r.Off = min(r.Off, o.Off)
	r.Len = end - r.Off
	return r, true
}

// In returns the bytes of r from those of a run that holds it.
func (r Run) In(hull Run, b []byte) []byte {
	at := r.Off - hull.Off
	return b[at : at+r.Len : at+r.Len]
}

// PairRun is a piece that is contiguous at both ends.
type PairRun struct {
	SrcRank, DstRank     uint32
	SrcRegion, DstRegion layout.RegionID
	SrcOff, DstOff       uint64
	Len                  uint64
}

// Src returns the end of p that is read.
func (p *PairRun) Src() Run { return Run{p.SrcRank, p.SrcRegion, p.SrcOff, p.Len} }

// Dst returns the end of p that is written.
func (p *PairRun) Dst() Run { return Run{p.DstRank, p.DstRegion, p.DstOff, p.Len} }

// Slice describes one slice.
type Slice struct {
	Bytes              uint64
	SrcRank, DstRank   uint32 // a slice has one source rank and one destination rank
	SrcLayer, DstLayer uint32 // ordinals, with Layered
}

// Mark says that slices from First on, until the next mark, read layer ordinal SrcLayer of producer rank SrcRank and
// write layer ordinal DstLayer of the consumer. A producer rank's ordinals count the layers of its layout, ascending; the
// consumer's count the distinct layers of all its ranks.
type Mark struct {
	First    uint32
	SrcRank  uint32
	SrcLayer uint32
	DstLayer uint32
}

// Plan is the result of New: a stream of bytes, cut into slices.
//
// The stream is a sequence of flows, each from one source rank to one destination rank: by destination and source rank,
// with Layered by layer first. A flow is a sequence of units, by group and layer: views that move together, mostly one.
// A unit is a sequence of chunks, by token: the tokens that share a block at the source and a block at the
// destination. A chunk's bytes have the order of the destination's memory. Where a byte of the stream lies is
// arithmetic, except for finding the flow, the unit and the span between holes, which is binary search.
//
// A Plan is immutable and safe for concurrent use; slices may be visited in any order, repeatedly. It refers to the
// ranks and block lists of its Request, which must not change.
type Plan struct {
	flows      []flow
	sliceBytes uint64
	bytes      uint64
	slices     int
	consumers  []Rank
	missing    []layout.Run
	size       int
	layered    bool

	// Room for what small plans have: one of each, so that a plan is one piece of memory.
	room struct {
		flows  [1]flow
		units  [1]unit
		parts  [1]part
		tracks [1]track
		spans  [1]span
		used   bool // units and parts
	}
}

// flow is what goes from one source rank to one destination rank, of one layer when the plan is layered.
type flow struct {
	srcRank, dstRank   uint32
	srcLayer, dstLayer uint32
	units              []unit
	bytes              uint64
	slice              int // its first
}

// Bytes returns the length of the stream.
func (p *Plan) Bytes() uint64 { return p.bytes }

// Slices returns how many slices there are.
func (p *Plan) Slices() int { return p.slices }

// RankBytes returns the bytes of each consumer rank of the request, also of those with none.
func (p *Plan) RankBytes() map[uint32]uint64 {
	n := make(map[uint32]uint64, len(p.consumers))
	for i := range p.consumers {
		n[p.consumers[i].Rank] = 0
	}
	for i := range p.flows {
		n[p.flows[i].dstRank] += p.flows[i].bytes
	}
	return n
}

// Missing returns the consumer's blocks that need tokens for which the producer's lists have no block. Their bytes are not in
// the stream (but for those that other producer ranks, with other holes, do have). Ascending groups and ids; not to be
// changed.
func (p *Plan) Missing() []layout.Run { return p.missing }

// Slice describes slice i.
func (p *Plan) Slice(i int) Slice {
	f, at := p.find(i)
	return Slice{
		Bytes:   min(p.sliceBytes, f.bytes-at),
		SrcRank: f.srcRank, DstRank: f.dstRank,
		SrcLayer: f.srcLayer, DstLayer: f.dstLayer,
	}
}

// Marks says which layers the slices of a layered plan belong to, ascending First; nil when the plan is not layered.
func (p *Plan) Marks() []Mark {
	if !p.layered {
		return nil
	}
	var marks []Mark
	for i := range p.flows {
		f := &p.flows[i]
		m := Mark{uint32(f.slice), f.srcRank, f.srcLayer, f.dstLayer}
		if n := len(marks); n > 0 && (Mark{marks[n-1].First, m.SrcRank, m.SrcLayer, m.DstLayer}) == marks[n-1] {
			continue
		}
		marks = append(marks, m)
	}
	return marks
}

// find returns the flow of slice i and the slice's place in it.
func (p *Plan) find(i int) (*flow, uint64) {
	if i < 0 || i >= p.slices {
		panic(fmt.Sprintf("plan: slice %d of %d", i, p.slices))
	}
	k := sort.Search(len(p.flows), func(k int) bool { return p.flows[k].slice > i }) - 1
	f := &p.flows[k]
	return f, uint64(i-f.slice) * p.sliceBytes
}
