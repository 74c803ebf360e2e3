package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// Reasons why there is no plan. Every error of New wraps one of them.
var (
	ErrInvalid      = errors.New("invalid request")             // the request contradicts itself or its layouts
	ErrIncompatible = errors.New("incompatible layouts")        // the two sides cannot exchange these views
	ErrOverlap      = errors.New("source and destination meet") // the same bytes on both sides
	ErrTooMuch      = errors.New("too much to plan")            // planning would hold up other plans
)

const (
	defaultSliceBytes = 1 << 20
	maxBytes          = 1 << 62
	maxSlices         = math.MaxInt32
)

// New makes the plan of a request. The order of ranks and lists in the request does not matter: both daemons get the
// same stream. Lists of groups that a rank's layout lacks are ignored (a scheduler names the groups of all ranks).
// Tokens that the consumer wants and the producer's lists lack are not an error; see Plan.Missing.
func New(r Request) (*Plan, error) {
	var b builder
	p := new(Plan)
	if err := b.make(p, r); err != nil {
		return nil, err
	}
	return p, nil
}

// Planner makes plans one after the other in the same memory, for callers that are done with a plan before they make
// the next. Not safe for concurrent use.
type Planner struct {
	b builder
	p Plan
}

// Plan is like New. The plan is valid until Drop, which must be called before the next Plan, also after an error.
func (x *Planner) Plan(r Request) (*Plan, error) {
	if err := x.b.make(&x.p, r); err != nil {
		return nil, err
	}
	return &x.p, nil
}

// Drop releases the last plan, or what remains of a failed one, and everything it refers to.
func (x *Planner) Drop() { x.p = Plan{} }

// builder holds New's working state.
type builder struct {
	plan               *Plan
	producer, consumer []Rank // ascending ranks
	layered, whole     bool
	tracks             []*track
	segments           []segment
	sources            []source
	spent              int // see maxWork
}

// make makes the plan in p, which must be zero.
func (b *builder) make(p *Plan, r Request) error {
	err := b.fill(p, r)
	b.reset()
	return err
}

func (b *builder) fill(p *Plan, r Request) error {
	b.plan, b.layered, b.whole = p, r.Layered, r.Whole
	var err error
	if b.producer, err = sortRanks("producer", r.Producer); err != nil {
		return err
	}
	if b.consumer, err = sortRanks("consumer", r.Consumer); err != nil {
		return err
	}
	if r.SameNode && r.SameSession != nil {
		if err := b.checkOverlap(r.SameSession); err != nil {
			return err
		}
	}
	if err := b.match(); err != nil {
		return err
	}
	p.sliceBytes, p.layered, p.consumers = r.SliceBytes, r.Layered, b.consumer
	if p.sliceBytes == 0 {
		p.sliceBytes = defaultSliceBytes
	}
	if err := b.flows(p); err != nil {
		return err
	}
	p.countPieces()
	p.missing = b.missing()
	p.size = b.size()
	return nil
}

// reset drops all references to the plan's inputs and keeps a little memory for the next plan.
func (b *builder) reset() {
	const few = 1024
	if cap(b.segments) > few {
		b.segments = nil
	}
	clear(b.tracks)
	clear(b.segments)
	clear(b.sources[:cap(b.sources)]) // of earlier lists, too, which may have had more
	*b = builder{tracks: b.tracks[:0], segments: b.segments[:0], sources: b.sources[:0]}
}

func sortRanks(side string, ranks []Rank) ([]Rank, error) {
	if len(ranks) == 0 {
		return nil, fmt.Errorf("plan: %w: no %s rank", ErrInvalid, side)
	}
	byRank := func(a, b Rank) int { return cmp.Compare(a.Rank, b.Rank) }
	if !slices.IsSortedFunc(ranks, byRank) {
		ranks = slices.Clone(ranks)
		slices.SortFunc(ranks, byRank)
	}
	for i := range ranks {
		r := &ranks[i]
		if i > 0 && ranks[i-1].Rank == r.Rank {
			return nil, fmt.Errorf("plan: %w: %s rank %d is given twice", ErrInvalid, side, r.Rank)
		}
		if r.Layout == nil {
			return nil, fmt.Errorf("plan: %w: %s rank %d has no layout", ErrInvalid, side, r.Rank)
		}
		var seen uint64
		for k := range r.Blocks {
			l := &r.Blocks[k]
			if l.Group >= layout.MaxGroups || seen&(1<<l.Group) != 0 {
				return nil, fmt.Errorf("plan: %w: %s rank %d: group %d is given twice, or not below %d", ErrInvalid, side, r.Rank, l.Group, layout.MaxGroups)
			}
			seen |= 1 << l.Group
			if g := r.Layout.Group(l.Group); g != nil {
				if err := g.CheckCount(l); err != nil {
					return nil, fmt.Errorf("plan: %w: %s rank %d: %w", ErrInvalid, side, r.Rank, err)
				}
			}
		}
	}
	return ranks, nil
}

// checkOverlap refuses blocks that are both source and destination. Ranks mostly share their layouts and lists, so
// equal pairs are checked only once.
func (b *builder) checkOverlap(same func(src, dst uint32) bool) error {
	var lastSrc, lastDst *Rank
	for i := range b.producer {
		for k := range b.consumer {
			src, dst := &b.producer[i], &b.consumer[k]
			if !same(src.Rank, dst.Rank) {
				continue
			}
			if src.Layout.Digest() != dst.Layout.Digest() {
				return fmt.Errorf("plan: %w: ranks %d and %d are one session with two layouts", ErrInvalid, src.Rank, dst.Rank)
			}
			if src.alike(lastSrc) && dst.alike(lastDst) {
				continue
			}
			lastSrc, lastDst = src, dst
			if err := b.spend(layout.CountIDs(src.Blocks) + layout.CountIDs(dst.Blocks)); err != nil {
				return err
			}
			if run, meet := src.Layout.Overlap(src.Blocks, dst.Blocks); meet {
				return fmt.Errorf("plan: %w: block %d of group %d is offered by rank %d and taken by rank %d; take into other blocks",
					ErrOverlap, run.First, run.Group, src.Rank, dst.Rank)
			}
		}
	}
	return nil
}

// alike says whether two ranks have the same layout and the very same lists.
func (r *Rank) alike(o *Rank) bool {
	return o != nil && len(r.Blocks) == len(o.Blocks) && (len(r.Blocks) == 0 || &r.Blocks[0] == &o.Blocks[0]) && r.Layout.Digest() == o.Layout.Digest()
}

// flows groups the segments into flows and units, and places the flows in the stream.
func (b *builder) flows(p *Plan) error {
	p.flows = p.room.flows[:0]
	b.sortSegments()
	layers := b.dstLayers()
	for i := 0; i < len(b.segments); {
		n := 1
		for i+n < len(b.segments) && b.sameFlow(&b.segments[i], &b.segments[i+n]) {
			n++
		}
		s := &b.segments[i]
		src, dst := &b.producer[s.src], &b.consumer[s.dst]
		f := flow{srcRank: src.Rank, dstRank: dst.Rank, slice: p.slices}
		if b.layered {
			f.srcLayer, f.dstLayer = ordinal(src.Layout.Layers(), s.d.Layer), ordinal(layers, s.d.Layer)
		}
		f.units = b.makeUnits(b.segments[i : i+n])
		i += n
		if err := p.add(f); err != nil {
			return err
		}
	}
	return nil
}

// add appends a flow, unless it is empty.
func (p *Plan) add(f flow) error {
	for i := range f.units {
		u := &f.units[i]
		u.start = f.bytes
		hi, lo := bits.Mul64(u.perToken, u.track.tokens)
		if hi != 0 || lo > maxBytes || f.bytes+lo > maxBytes {
			return fmt.Errorf("plan: %w: more than %d bytes from rank %d to rank %d", ErrInvalid, uint64(maxBytes), f.srcRank, f.dstRank)
		}
		f.bytes += lo
	}
	if f.bytes == 0 {
		return nil
	}
	n := (f.bytes-1)/p.sliceBytes + 1
	if n > maxSlices-uint64(p.slices) || p.bytes+f.bytes > maxBytes {
		return fmt.Errorf("plan: %w: %d bytes in slices of %d; at most %d slices", ErrInvalid, p.bytes+f.bytes, p.sliceBytes, maxSlices)
	}
	p.slices += int(n)
	p.bytes += f.bytes
	p.flows = append(p.flows, f)
	return nil
}

// dstLayers returns the distinct layers of all consumer ranks, ascending.
func (b *builder) dstLayers() []uint32 {
	if !b.layered {
		return nil
	}
	var all []uint32
	for i := range b.consumer {
		all = append(all, b.consumer[i].Layout.Layers()...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func ordinal(layers []uint32, layer uint32) uint32 {
	i, _ := slices.BinarySearch(layers, layer)
	return uint32(i)
}
