package plan

import (
	"fmt"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// track is a pair of block lists: which tokens move, and through which blocks. An opaque block counts as a block of
// one token, whose number is its position in the list.
type track struct {
	group    uint32
	src, dst list
	spans    []span // where neither side has a hole
	tokens   uint64 // of all spans
	lacks    *lacks // nil: nothing
}

// list is one side's blocks.
type list struct {
	ids        []uint32
	size       uint64 // tokens per block
	first, end uint64 // tokens
	skip       uint64 // block number of ids[0]
	blocks     uint64 // all ids are below it
}

// span is a run of tokens that move.
type span struct {
	first, end uint64
	before     uint64 // tokens of earlier spans
}

func makeList(b *layout.BlockList, g *layout.Group) list {
	if g.Kind == layout.Opaque {
		return list{ids: b.IDs, size: 1, end: uint64(len(b.IDs)), blocks: g.NumBlocks}
	}
	size := uint64(g.BlockSize)
	first := uint64(b.FirstToken)
	return list{ids: b.IDs, size: size, first: first, end: first + uint64(b.NTokens), skip: first / size, blocks: g.NumBlocks}
}

func (l *list) same(m *list) bool {
	return len(l.ids) == len(m.ids) && l.size == m.size && l.first == m.first && l.end == m.end && l.blocks == m.blocks && (len(l.ids) == 0 || &l.ids[0] == &m.ids[0])
}

// track returns the track from a source's list to the current consumer list.
func (b *builder) track(from *source, consumer *layout.BlockList, group *layout.Group) (t *track, err error) {
	if from.track == nil {
		from.track, err = b.findTrack(from, consumer, group)
	}
	return from.track, err
}

// findTrack finds the track, or makes it. Ranks mostly share their lists, and then share the track.
func (b *builder) findTrack(from *source, consumer *layout.BlockList, group *layout.Group) (*track, error) {
	if err := b.spend(len(b.tracks)); err != nil {
		return nil, err
	}
	given := layout.BlockList{}
	if from.list != nil {
		given = *from.list
	}
	src, dst := makeList(&given, from.group), makeList(consumer, group)
	var others *lacks // of an earlier track to the same list
	for _, t := range b.tracks {
		if t.group != group.ID || !t.dst.same(&dst) {
			continue
		}
		if t.src.same(&src) {
			return t, nil
		}
		if t.lacks != nil {
			others = t.lacks
		}
	}
	ids := len(src.ids) + len(dst.ids)
	if err := b.spend(ids / idsScanned); err != nil {
		return nil, err
	}
	t := &b.plan.room.tracks[0]
	if len(b.tracks) > 0 {
		t = new(track)
	} else {
		t.spans = b.plan.room.spans[:0]
	}
	t.group, t.src, t.dst = group.ID, src, dst
	srcHoles, err := t.src.scan(t.group)
	if err != nil {
		return nil, fmt.Errorf("plan: %w: producer: %w", ErrInvalid, err)
	}
	dstHoles, err := t.dst.scan(t.group)
	if err != nil {
		return nil, fmt.Errorf("plan: %w: consumer: %w", ErrInvalid, err)
	}
	if !srcHoles && !dstHoles && t.src.first <= t.dst.first && t.dst.end <= t.src.end {
		t.push(t.dst.first, t.dst.end)
	} else {
		if err := b.spend(ids); err != nil {
			return nil, err
		}
		t.lacks = others
		t.findSpans()
	}
	b.tracks = append(b.tracks, t)
	return t, nil
}

// scan checks the range of the ids and reports holes.
func (l *list) scan(group uint32) (holes bool, err error) {
	blocks := uint32(l.blocks)
	if layout.IsAdjacent(l.ids) && l.ids[len(l.ids)-1] < blocks {
		return false, nil
	}
	for i, id := range l.ids {
		if id >= blocks {
			if id != layout.NoBlock {
				return false, fmt.Errorf("blocks: group %d: id %d at position %d; the group has %d blocks", group, id, i, blocks)
			}
			holes = true
		}
	}
	return holes, nil
}

// findSpans finds what moves of the consumer's blocks, and what is missing. It counts the spans first: there may be half a
// million, and a list that grows to that takes several times as much memory.
func (t *track) findSpans() {
	n, until := 0, ^uint64(0)
	t.visit(func(_ int, first, end uint64, moves bool) {
		if moves && first != until {
			n++
		}
		if moves {
			until = end
		}
	})
	if n > cap(t.spans) {
		t.spans = make([]span, 0, n)
	}
	t.visit(func(i int, first, end uint64, moves bool) {
		if moves {
			t.push(first, end)
		} else {
			t.lack(i)
		}
	})
}

// visit calls f for each of the consumer's blocks, with its position and those of its tokens that were asked for. It
// either moves whole, or is missing.
func (t *track) visit(f func(i int, first, end uint64, moves bool)) {
	for i, id := range t.dst.ids {
		at := (t.dst.skip + uint64(i)) * t.dst.size
		first, end := max(at, t.dst.first), min(at+t.dst.size, t.dst.end)
		if id != layout.NoBlock && first < end {
			f(i, first, end, t.src.has(first, end))
		}
	}
}

// has says whether the list has blocks for all tokens from first to end.
func (l *list) has(first, end uint64) bool {
	if first < l.first || end > l.end {
		return false
	}
	return layout.IsAdjacent(l.ids) || !slices.Contains(l.ids[first/l.size-l.skip:(end-1)/l.size-l.skip+1], layout.NoBlock)
}

func (t *track) push(first, end uint64) {
	if first >= end {
		return
	}
	if n := len(t.spans); n > 0 && t.spans[n-1].end == first {
		t.spans[n-1].end = end
	} else {
		t.spans = append(t.spans, span{first, end, t.tokens})
	}
	t.tokens += end - first
}
