package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// segment is what one source view gives to one destination view: some heads of a track's tokens.
type segment struct {
	src, dst int // indices of ranks
	track    *track
	s, d     *layout.View
	head, n  uint32 // model-wide
}

func (s *segment) srcOff() uint64 { return s.s.Base + uint64(s.head-s.s.FirstHead)*s.s.HeadStride }
func (s *segment) dstOff() uint64 { return s.d.Base + uint64(s.head-s.d.FirstHead)*s.d.HeadStride }

// source is one producer rank's views of a group, with a cursor that moves forward as the consumer's views are
// visited. Both are in the same order.
type source struct {
	index int // of the rank
	rank  uint32
	list  *layout.BlockList // nil: the rank has the group but was given no blocks of it
	group *layout.Group
	at    int
	track *track // to the current consumer list; nil: not asked for yet
}

// view advances to the first view that is not before v and ends past head. It returns that view if it has v's layer
// and part, else nil.
func (s *source) view(v *layout.View, head uint32) *layout.View {
	for ; s.at < len(s.group.Views); s.at++ {
		w := &s.group.Views[s.at]
		c := cmp.Compare(w.Layer, v.Layer)
		if c == 0 {
			c = cmp.Compare(w.Part, v.Part)
		}
		if c > 0 {
			return nil
		}
		if c == 0 && w.FirstHead+w.Heads > head {
			return w
		}
	}
	return nil
}

// match finds the producer view that each head comes from, for every consumer view that has a block list.
func (b *builder) match() error {
	wanted := false
	sources := b.sources
	views := 0
	for i := range b.consumer {
		views += len(b.consumer[i].Layout.Views())
	}
	b.segments = slices.Grow(b.segments, min(views, maxSegments))
	for dst := range b.consumer {
		rank := &b.consumer[dst]
		for i := range rank.Blocks {
			list := &rank.Blocks[i]
			group := rank.Layout.Group(list.Group)
			if group == nil || len(list.IDs) == 0 || group.Kind == layout.Paged && list.NTokens == 0 {
				continue
			}
			wanted = true
			sources = sources[:0]
			steps := len(b.producer)
			for src := range b.producer {
				if g := b.producer[src].Layout.Group(list.Group); g != nil {
					sources = append(sources, source{index: src, rank: b.producer[src].Rank, list: listOf(b.producer[src].Blocks, list.Group), group: g})
					steps += len(g.Views) // the cursor may pass all of them, however few the consumer has
				}
			}
			if err := b.spend(steps); err != nil {
				return err
			}
			from := len(b.segments)
			for k := range group.Views {
				if err := b.matchView(sources, dst, list, group, &group.Views[k]); err != nil {
					return err
				}
			}
			if group.Shared != nil {
				if err := b.checkShared(dst, group, b.segments[from:]); err != nil {
					return err
				}
			}
		}
	}
	b.sources = sources
	if wanted && len(b.segments) == 0 {
		return fmt.Errorf("plan: %w: no group, layer, part and head of the %d consumer ranks is held by any of the %d producer ranks",
			ErrIncompatible, len(b.consumer), len(b.producer))
	}
	return nil
}

func listOf(lists []layout.BlockList, group uint32) *layout.BlockList {
	for i := range lists {
		if lists[i].Group == group {
			return &lists[i]
		}
	}
	return nil
}

// matchView covers the heads of one consumer view, in ascending order.
func (b *builder) matchView(sources []source, dst int, list *layout.BlockList, group *layout.Group, v *layout.View) error {
	end := v.FirstHead + v.Heads
	for head := v.FirstHead; head < end; {
		if err := b.spend(len(sources)); err != nil {
			return err
		}
		from, w, next, err := choose(sources, dst, v, head)
		if err != nil {
			return fmt.Errorf("plan: %w: layer %d part %q of group %d: consumer rank %d: %w",
				ErrIncompatible, v.Layer, v.Part, v.Group, b.consumer[dst].Rank, err)
		}
		if w == nil {
			next = min(next, end)
			if b.whole {
				return b.uncovered(dst, v, head, next)
			}
			head = next
			continue
		}
		t, err := b.track(from, list, group)
		if err != nil {
			return err
		}
		stop := min(end, w.FirstHead+w.Heads)
		b.segments = append(b.segments, segment{src: from.index, dst: dst, track: t, s: w, d: v, head: head, n: stop - head})
		head = stop
	}
	return nil
}

// choose returns the source of a head, or, if there is none, the next head at which to look. Replicas take turns over
// the consumer's ranks; ranks with a block list come before ranks without one.
func choose(sources []source, dst int, v *layout.View, head uint32) (from *source, w *layout.View, next uint32, err error) {
	next = ^uint32(0)
	given, bare := 0, 0
	for i := range sources {
		s := &sources[i]
		w := s.view(v, head)
		if w == nil {
			continue
		}
		if err := compatible(w, v); err != nil {
			return nil, nil, 0, fmt.Errorf("producer rank %d: %w", s.rank, err)
		}
		switch {
		case w.FirstHead > head:
			next = min(next, w.FirstHead)
		case s.list != nil:
			given++
		default:
			bare++
		}
	}
	if given+bare == 0 {
		return nil, nil, next, nil
	}
	turn := dst % max(given, 1)
	if given == 0 {
		turn = dst % bare
	}
	for i := range sources {
		s := &sources[i]
		w := s.view(v, head)
		if w == nil || w.FirstHead > head || given > 0 && s.list == nil {
			continue
		}
		if turn == 0 {
			return s, w, next, nil
		}
		turn--
	}
	return nil, nil, next, nil
}

// compatible says why two views of the same layer and part cannot exchange data.
func compatible(w, v *layout.View) error {
	switch {
	case w.Kind != v.Kind:
		return fmt.Errorf("kind is %d at the producer and %d at the consumer", w.Kind, v.Kind)
	case w.TotalHeads != v.TotalHeads:
		return fmt.Errorf("total_heads is %d at the producer and %d at the consumer", w.TotalHeads, v.TotalHeads)
	case w.ContentBytes != v.ContentBytes:
		return fmt.Errorf("content_bytes is %d at the producer and %d at the consumer", w.ContentBytes, v.ContentBytes)
	case w.Kind == layout.Opaque && w.FirstHead < v.FirstHead+v.Heads && (w.FirstHead != v.FirstHead || w.Heads != v.Heads):
		return fmt.Errorf("opaque blocks only move whole, but heads are %d to %d at the producer and %d to %d at the consumer",
			w.FirstHead, w.FirstHead+w.Heads, v.FirstHead, v.FirstHead+v.Heads)
	}
	return nil
}

// uncovered makes the error for heads that a whole plan needs and no producer rank holds.
func (b *builder) uncovered(dst int, v *layout.View, head, end uint32) error {
	err := fmt.Errorf("plan: %w: consumer rank %d needs heads %d to %d of layer %d part %q in group %d, which no producer rank holds",
		ErrIncompatible, b.consumer[dst].Rank, head, end, v.Layer, v.Part, v.Group)
	for i := range b.producer {
		views := b.producer[i].Layout.Views()
		k := slices.IndexFunc(views, func(w layout.View) bool { return w.Layer == v.Layer && w.Part == v.Part && w.Group != v.Group })
		if k >= 0 {
			return fmt.Errorf("%w; producer rank %d has that layer in group %d", err, b.producer[i].Rank, views[k].Group)
		}
	}
	return err
}
