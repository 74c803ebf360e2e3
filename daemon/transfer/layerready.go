package transfer

// A layered take tells how many of its layers, in ascending order, are in place.

// progressLayers publishes how many of the take's layers are in place, counted from the first.
func (t *take) progressLayers(m *Machine) {
	if t.in.LayerSlot == NoSlot || !t.in.Layered || !t.allAnnounced() {
		return
	}
	ready := t.layers()
	for _, seg := range t.segs {
		ready = min(ready, seg.layersIn(ready))
	}
	if ready > t.layersReady {
		t.layersReady = ready
		m.emit(LayerReady{Session: t.by.id, Slot: t.in.LayerSlot, UserData: t.user, Ready: ready})
	}
}

// allAnnounced: no further segment can add to a layer.
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

// layers counts the distinct layers of all ranks.
func (t *take) layers() uint32 {
	if t.nlayers == 0 {
		seen := map[uint32]bool{}
		for _, r := range t.layouts {
			for _, l := range r.Layout.Layers() {
				seen[l] = true
			}
		}
		t.nlayers = uint32(len(seen))
	}
	return t.nlayers
}

// layersIn is how many layers, from the first and at most most, have no slice of the segment that is not in place. Slices of
// layered plans come in the order of layers, so it goes on where it stopped before.
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
