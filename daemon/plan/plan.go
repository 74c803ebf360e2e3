// Package plan turns two layouts and two block lists into bytes to move. A plan is the intersection, per layer, part
// and group, of the producer's and the consumer's token ranges and head ranges, laid out as one canonical stream of
// bytes that both daemons derive alike from the same input. The stream is cut into slices of bounded size; the
// runs of a slice (where its bytes lie at the source, at the destination, or as pairs of both) are produced lazily.
// Nothing is allocated per block. Pure: no I/O, no clock, no address.
package plan

import "github.com/kvpipe/kvpipe/daemon/layout"

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

// PairRun is a piece that is contiguous at both ends.
type PairRun struct {
	SrcRank, DstRank     uint32
	SrcRegion, DstRegion layout.RegionID
	SrcOff, DstOff       uint64
	Len                  uint64
}

// Slice describes one slice.
type Slice struct {
	Bytes              uint64
	SrcRank, DstRank   uint32 // a slice has one source rank and one destination rank
	SrcLayer, DstLayer uint32 // ordinals, with Layered
}

// The package's promise to its users (transports and driver), besides New(Request) (*Plan, error):
//
//	(*Plan).Bytes() uint64
//	(*Plan).Slices() int
//	(*Plan).Slice(i int) Slice
//	(*Plan).RankBytes() map[uint32]uint64          consumer rank -> bytes
//	(*Plan).Missing() []layout.Run                 destination blocks without a source block, in block ids of the consumer
//	(*Plan).Src(i int, dst []Run) []Run            appends the source runs of slice i, merged, in stream order
//	(*Plan).Dst(i int, dst []Run) []Run            appends the destination runs of slice i, merged, in stream order
//	(*Plan).Pairs(i int, dst []PairRun) []PairRun  appends the runs contiguous at both ends, merged
//
// A Plan is immutable after New and safe for concurrent use; slices may be visited in any order, repeatedly.

// Plan is the result of New.
type Plan struct{}
