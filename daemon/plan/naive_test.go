package plan_test

import (
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
)

// The naive model: it knows elements (block, token, head), looks for each by going through everything, and moves one byte
// at a time.

// element is one element of a rank's memory that a list names.
type element struct {
	view  *layout.View
	off   uint64
	block uint32
	token uint32 // position, for opaque
	head  uint32 // first head, for opaque
}

// content is the byte that an element is given at the producer, wherever it is: replicas are equal. What shares its place may be given another later.
func (e *element) content(i uint64) byte {
	h := uint64(14695981039346656037)
	for _, x := range []uint64{uint64(e.view.Group), uint64(e.view.Layer), uint64(e.view.Part[0]), uint64(e.token), uint64(e.head), i} {
		h = (h ^ x) * 1099511628211
		h ^= h >> 29
	}
	return byte(h)
}

// elements lists every element that the rank's lists name.
func (r *rank) elements() []element {
	var out []element
	views := r.layout.Views()
	for _, b := range r.blocks {
		for i := range views {
			v := &views[i]
			if v.Group != b.Group {
				continue
			}
			if v.Kind == layout.Opaque {
				for pos, id := range b.IDs {
					if id != layout.NoBlock {
						out = append(out, element{v, v.Base + uint64(id)*v.BlockStride, id, uint32(pos), v.FirstHead})
					}
				}
				continue
			}
			for token := b.FirstToken; token < b.FirstToken+b.NTokens; token++ {
				id := b.IDs[token/v.BlockSize-b.FirstToken/v.BlockSize]
				if id == layout.NoBlock {
					continue
				}
				for h := range v.Heads {
					off := v.Base + uint64(id)*v.BlockStride + uint64(token%v.BlockSize)*v.TokenStride + uint64(h)*v.HeadStride
					out = append(out, element{v, off, id, token, v.FirstHead + h})
				}
			}
		}
	}
	return out
}

// fill writes the producer's elements over a background, and another background to the consumer.
func (w *world) fill() {
	for _, e := range []*engine{w.producer, w.consumer} {
		for _, r := range e.ranks {
			for region, mem := range r.mem {
				for i := range mem {
					mem[i] = byte(uint64(i)*7 + uint64(region)*13 + uint64(r.id))
				}
			}
		}
	}
	for _, r := range w.producer.ranks {
		for _, e := range r.elements() {
			for i := range e.view.ContentBytes {
				r.mem[e.view.Region][e.off+i] = e.content(i)
			}
		}
	}
}

type elementKey struct {
	group, layer uint32
	part         string
	token, head  uint32
}

func (e *element) key() elementKey {
	return elementKey{e.view.Group, e.view.Layer, e.view.Part, e.token, e.head}
}

type headKey struct {
	group, layer uint32
	part         string
	head         uint32
}

type blockKey struct{ group, id uint32 }

// expected is what the naive model says of a hand-over.
type expected struct {
	mem       map[uint32]map[layout.RegionID][]byte // of the consumer's ranks, afterwards
	bytes     uint64
	rankBytes map[uint32]uint64
	missing   []layout.Run
	uncovered bool // a consumer view has heads that no producer rank holds
	nothing   bool // something is wanted, nothing can be given
	clash     bool // views in one place would get what lies in several
}

// spot is where a head of a view begins.
type spot struct {
	rank   uint32
	region layout.RegionID
	off    uint64
}

func (w *world) expect() *expected {
	x := &expected{mem: map[uint32]map[layout.RegionID][]byte{}, rankBytes: map[uint32]uint64{}}
	given := map[elementKey][]byte{}
	held := map[headKey][]spot{}
	for _, r := range w.producer.ranks {
		for _, v := range r.layout.Views() {
			for h := range v.Heads {
				k := headKey{v.Group, v.Layer, v.Part, v.FirstHead + h}
				held[k] = append(held[k], spot{r.id, v.Region, v.Base + uint64(h)*v.HeadStride})
			}
		}
		for _, e := range r.elements() {
			given[e.key()] = r.mem[e.view.Region][e.off : e.off+e.view.ContentBytes]
		}
	}
	missing := map[blockKey]bool{}
	wanted, some := false, false
	for _, r := range w.consumer.ranks {
		x.mem[r.id] = map[layout.RegionID][]byte{}
		x.rankBytes[r.id] = 0
		for region, mem := range r.mem {
			x.mem[r.id][region] = slices.Clone(mem)
		}
		for _, v := range r.layout.Views() {
			if !r.wants(v.Group) {
				continue
			}
			wanted = true
			for h := range v.Heads {
				if held[headKey{v.Group, v.Layer, v.Part, v.FirstHead + h}] != nil {
					some = true
				} else {
					x.uncovered = true
				}
			}
		}
		x.clash = x.clash || r.clashes(held)
		// A block is missing for all ranks, since it is missing by its tokens alone.
		lost := map[blockKey]bool{}
		for _, e := range r.elements() {
			k := e.key()
			if held[headKey{k.group, k.layer, k.part, k.head}] != nil && given[k] == nil {
				lost[blockKey{k.group, e.block}] = true
				missing[blockKey{k.group, e.block}] = true
			}
		}
		for _, e := range r.elements() {
			k := e.key()
			if lost[blockKey{k.group, e.block}] || given[k] == nil {
				continue
			}
			copy(x.mem[r.id][e.view.Region][e.off:], given[k])
			x.bytes += e.view.ContentBytes
			x.rankBytes[r.id] += e.view.ContentBytes
		}
	}
	x.nothing = wanted && !some
	for k := range missing {
		x.missing = append(x.missing, layout.Run{Group: k.group, First: k.id, Count: 1})
	}
	slices.SortFunc(x.missing, func(a, b layout.Run) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.First, b.First))
	})
	return x
}

// clashes says whether views of the rank that begin at the same byte would get other bytes each.
func (r *rank) clashes(held map[headKey][]spot) bool {
	sources := func(v *layout.View) (all [][]spot) {
		for h := range v.Heads {
			all = append(all, held[headKey{v.Group, v.Layer, v.Part, v.FirstHead + h}])
		}
		return all
	}
	nothing := func(of [][]spot) bool { return !slices.ContainsFunc(of, func(s []spot) bool { return s != nil }) }
	views := r.layout.Views()
	for i := range views {
		for k := range views[:i] {
			v, w := &views[i], &views[k]
			if v.Group != w.Group || v.Region != w.Region || v.Base != w.Base || !r.wants(v.Group) {
				continue
			}
			a, b := sources(v), sources(w)
			if !nothing(a) && !nothing(b) && !slices.EqualFunc(a, b, slices.Equal[[]spot]) {
				return true
			}
		}
	}
	return false
}

// wants says whether the rank's lists ask for anything of a group.
func (r *rank) wants(group uint32) bool {
	for _, b := range r.blocks {
		if g := r.layout.Group(group); b.Group == group && len(b.IDs) > 0 && (g.Kind == layout.Opaque || b.NTokens > 0) {
			return true
		}
	}
	return false
}

func (e *engine) planRanks() []plan.Rank {
	var out []plan.Rank
	for _, r := range e.ranks {
		out = append(out, plan.Rank{Rank: r.id, Layout: r.layout, Blocks: r.blocks})
	}
	return out
}

// reset gives the consumer fresh memory.
func (w *world) reset() map[uint32]map[layout.RegionID][]byte {
	out := map[uint32]map[layout.RegionID][]byte{}
	for _, r := range w.consumer.ranks {
		out[r.id] = map[layout.RegionID][]byte{}
		for region, mem := range r.mem {
			out[r.id][region] = slices.Clone(mem)
		}
	}
	return out
}
