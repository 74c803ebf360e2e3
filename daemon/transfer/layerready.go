package transfer

import (
	"maps"
	"slices"
)

// A layered take tells how many of its layers, in ascending order, are in place.

// progressLayers publishes how many of the take's layers are in place, counted from the first. A take that lacks blocks
// publishes none; its end says which blocks.
func (t *take) progressLayers(m *Machine) {
	if t.in.LayerSlot == NoSlot || !t.in.Layered || !t.allAnnounced() {
		return
	}
	if t.layers == nil {
		t.layers = t.countLayers()
		t.lookAround()
	}
	if len(t.missing) > 0 {
		return
	}
	in := uint32(len(t.layers) - 1)
	for _, seg := range t.segs {
		in = min(in, seg.layersIn(in))
	}
	if ready := t.layers[in]; ready > t.layersReady {
		t.layersReady = ready
		m.emit(LayerReady{Session: t.by.id, Slot: t.in.LayerSlot, UserData: t.user, Ready: ready})
	}
}

// allAnnounced says whether all segments are known, so that no further one can add to a layer.
func (t *take) allAnnounced() bool {
	last := t.sent && len(t.segs) >= t.sentSegs
	for _, seg := range t.segs {
		if seg == nil || !seg.planned {
			return false
		}
		last = last || seg.grant.Last
	}
	return last
}

// countLayers counts, for every n, how many of the first n layers of all ranks are the take's. A worker's library knows
// by the groups which those are. A scheduler has no layout, so all layers are its take's.
func (t *take) countLayers() []uint32 {
	groups := uint64(0)
	for _, b := range t.in.Blocks {
		groups |= 1 << b.Group
	}
	if t.by.role == Scheduler {
		groups = ^uint64(0)
	}
	mine := map[uint32]bool{}
	for _, r := range t.layouts {
		for _, v := range r.Layout.Views() {
			mine[v.Layer] = mine[v.Layer] || groups&(1<<v.Group) != 0
		}
	}
	n, counts := uint32(0), make([]uint32, 1, len(mine)+1)
	for _, l := range slices.Sorted(maps.Keys(mine)) {
		if mine[l] {
			n++
		}
		counts = append(counts, n)
	}
	return counts
}

// layersIn is how many layers, from the first on and most at most, have all their slices of the segment in place.
// Slices of layered plans come in the order of layers, so it goes on where it stopped before.
func (r *receiving) layersIn(most uint32) uint32 {
	for ; r.mark < len(r.marks); r.mark++ {
		end := r.slices
		if r.mark+1 < len(r.marks) {
			end = r.marks[r.mark+1].First
		}
		for ; r.upTo < end; r.upTo++ {
			if !r.has(r.upTo) {
				return min(most, r.marks[r.mark].DstLayer)
			}
		}
	}
	return most
}
