// Package plan turns two layouts and two block lists into bytes to move. For each layer, part and group, a plan is
// the intersection of the producer's and the consumer's token and head ranges, laid out as one canonical stream of
// bytes. Both daemons derive the same stream from the same input. The stream is cut into slices of bounded size. The
// runs of a slice (where its bytes lie at the source, at the destination, or as pairs of both) are produced lazily.
// Nothing is allocated per block. Pure: no I/O, no clock, no address.
package plan

import (
	"fmt"
	"sort"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// Rank is one rank of one side, with its block lists.
type Rank struct {
	Rank   uint32
	Layout *layout.Layout
	Blocks []layout.BlockList
}

// Request is the input of New.
type Request struct {
	Producer, Consumer []Rank
	Layered            bool                               // order by layer; slices never cross a layer
	Whole              bool                               // every consumer element needs a producer element; the error names the first without one
	SliceBytes         uint64                             // 0: 1 MiB
	SameNode           bool                               // both sides' regions are on this node: refuse overlaps of source and destination
	SameSession        func(srcRank, dstRank uint32) bool // with SameNode: whether the two ranks' region ids name the same memory
}

// Run is a contiguous piece of one rank's region.
type Run struct {
	Rank   uint32
	Region layout.RegionID
	Off    uint64
	Len    uint64
}

// Hull returns the smallest run that holds r and o; ok is false if they lie in different regions. With it, the memory
// of many runs can be looked up once.
func (r Run) Hull(o Run) (hull Run, ok bool) {
	if r.Rank != o.Rank || r.Region != o.Region {
		return r, false
	}
	end := max(r.Off+r.Len, o.Off+o.Len)
	r.Off = min(r.Off, o.Off)
	r.Len = end - r.Off
	return r, true
}

// In returns r's part of b, the bytes of hull, which must hold r.
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
	SrcLayer, DstLayer uint32 // layer ordinals, if Layered
}

// Mark says that from slice First on, until the next mark, slices read layer ordinal SrcLayer of producer rank
// SrcRank and write layer ordinal DstLayer of the consumer. A producer rank's ordinals number the layers of its
// layout, ascending; the consumer's number the distinct layers of all its ranks.
type Mark struct {
	First    uint32
	SrcRank  uint32
	SrcLayer uint32
	DstLayer uint32
}

// Plan is the result of New: a stream of bytes, cut into slices.
//
// The stream is a sequence of flows, each from one source rank to one destination rank, ordered by destination and
// then source rank; with Layered, by layer first. A flow is a sequence of units, ordered by group and layer. A unit
// is mostly one view, or several that move together. A unit is a sequence of chunks, ordered by token: a chunk is the
// tokens that share a block at the source and a block at the destination. A chunk's bytes have the order of the
// destination's memory. Where a byte of the stream lies is arithmetic, except that the flow, the unit and the span
// between holes are found by binary search.
//
// A Plan is immutable and safe for concurrent use. Slices may be visited in any order, repeatedly. It refers to the
// ranks and block lists of its Request, which must not change.
type Plan struct {
	flows      []flow
	sliceBytes uint64
	bytes      uint64
	slices     int
	pieces     uint64
	consumers  []Rank
	missing    []layout.Run
	size       int
	layered    bool

	// Room for one of each, so that a small plan is a single allocation.
	room struct {
		flows  [1]flow
		units  [1]unit
		parts  [1]part
		tracks [1]track
		spans  [1]span
		used   bool // units and parts are taken
	}
}

// flow is the bytes from one source rank to one destination rank, of one layer if the plan is layered.
type flow struct {
	srcRank, dstRank   uint32
	srcLayer, dstLayer uint32
	units              []unit
	bytes              uint64
	slice              int // its first slice
}

// Bytes returns the length of the stream.
func (p *Plan) Bytes() uint64 { return p.bytes }

// Slices returns how many slices there are.
func (p *Plan) Slices() int { return p.slices }

// RankBytes returns the bytes of every consumer rank of the request, zero included.
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

// Missing returns the consumer's blocks that need tokens for which some producer rank's list has no block. Bytes from
// that rank are not in the stream; those that other producer ranks have are. Ascending groups and ids. The caller
// must not change it.
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

// Marks says which layers the slices of a layered plan belong to, in ascending order of First; nil if the plan is not
// layered.
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

// find returns the flow of slice i and the slice's byte offset in it.
func (p *Plan) find(i int) (*flow, uint64) {
	if i < 0 || i >= p.slices {
		panic(fmt.Sprintf("plan: slice %d of %d", i, p.slices))
	}
	k := sort.Search(len(p.flows), func(k int) bool { return p.flows[k].slice > i }) - 1
	f := &p.flows[k]
	return f, uint64(i-f.slice) * p.sliceBytes
}
