package layout

import "fmt"

// Holds is the table of holds on one rank's blocks. A block has any number of shared holds (offers), or one exclusive
// hold (a take). Groups that overlay each other share entries. Not safe for concurrent use.
type Holds struct {
	layout            *Layout
	domains           [][]*chunk
	made              int // chunks
	shared, exclusive int
}

// chunk has one count per block: the number of shared holds, or writing. A chunk exists once one of its blocks was
// held.
type chunk [chunkBlocks]int32

const (
	chunkShift  = 12
	chunkBlocks = 1 << chunkShift
	writing     = -1
)

// NewHolds returns the empty table of a layout's blocks.
func NewHolds(l *Layout) *Holds {
	h := &Holds{layout: l, domains: make([][]*chunk, len(l.domains))}
	for i, n := range l.domains {
		h.domains[i] = make([]*chunk, (n+chunkBlocks-1)>>chunkShift)
	}
	return h
}

// Acquire takes a hold on every block of the lists. If there is a conflict it takes none and names the first block in
// conflict. The lists must have passed CheckBlocks; lists of groups that the layout lacks are skipped (a scheduler's
// operation names the groups of all ranks). A hold is on whole blocks, whatever tokens the lists name.
func (h *Holds) Acquire(lists []BlockList, exclusive bool) (conflict Run, err error) {
	for i := range lists {
		if k := h.acquire(&lists[i], exclusive); k >= 0 {
			for j := range i {
				h.release(&lists[j], len(lists[j].IDs), exclusive)
			}
			h.release(&lists[i], k, exclusive)
			return h.conflict(lists[i].Group, lists[i].IDs[k])
		}
	}
	return Run{}, nil
}

// Release gives back what one Acquire with the same arguments took.
func (h *Holds) Release(lists []BlockList, exclusive bool) {
	for i := range lists {
		h.release(&lists[i], len(lists[i].IDs), exclusive)
	}
}

// Held returns the number of holds of either kind; a block that several share counts once per hold.
func (h *Holds) Held() (shared, exclusive int) { return h.shared, h.exclusive }

// Size returns how many counts the table has, each of 4 bytes.
func (h *Holds) Size() int { return h.made * chunkBlocks }

// chunk returns the chunk of a block, which exists from then on.
func (h *Holds) chunk(chunks []*chunk, id uint32) *chunk {
	c := chunks[id>>chunkShift]
	if c == nil {
		c = new(chunk)
		chunks[id>>chunkShift] = c
		h.made++
	}
	return c
}

// acquire returns the position of the first conflict, or -1.
func (h *Holds) acquire(b *BlockList, exclusive bool) int {
	g := h.layout.Group(b.Group)
	if g == nil {
		return -1
	}
	chunks := h.domains[g.domain]
	step, count := int32(1), &h.shared
	if exclusive {
		step, count = writing, &h.exclusive
	}
	if IsAdjacent(b.IDs) {
		n := h.acquireRun(chunks, b.IDs[0], len(b.IDs), step)
		*count += n
		if n < len(b.IDs) {
			return n
		}
		return -1
	}
	for k, id := range b.IDs {
		if id == NoBlock {
			continue
		}
		n := &h.chunk(chunks, id)[id&(chunkBlocks-1)]
		if *n < 0 || exclusive && *n != 0 {
			return k
		}
		*n += step
		*count++
	}
	return -1
}

// release undoes acquire for the first n positions.
func (h *Holds) release(b *BlockList, n int, exclusive bool) {
	g := h.layout.Group(b.Group)
	if g == nil {
		return
	}
	chunks := h.domains[g.domain]
	step, count := int32(1), &h.shared
	if exclusive {
		step, count = writing, &h.exclusive
	}
	if IsAdjacent(b.IDs[:n]) {
		if k := releaseRun(chunks, b.IDs[0], n, step); k < n {
			notHeld(b, b.IDs[k], chunks)
		}
		*count -= n
		return
	}
	for _, id := range b.IDs[:n] {
		if id == NoBlock {
			continue
		}
		held := &chunks[id>>chunkShift][id&(chunkBlocks-1)]
		if *held == 0 || (*held < 0) != exclusive {
			notHeld(b, id, chunks)
		}
		*held -= step
		*count--
	}
}

func notHeld(b *BlockList, id uint32, chunks []*chunk) {
	held := chunks[id>>chunkShift][id&(chunkBlocks-1)]
	panic(fmt.Sprintf("layout: release of block %d of group %d, which is not held so (%d)", id, b.Group, held))
}

func (h *Holds) conflict(group, id uint32) (Run, error) {
	n := h.domains[h.layout.Group(group).domain][id>>chunkShift][id&(chunkBlocks-1)]
	run := Run{Group: group, First: id, Count: 1}
	if n < 0 {
		return run, fmt.Errorf("block %d of group %d is being written by a take; wait until that is released", id, group)
	}
	return run, fmt.Errorf("block %d of group %d is offered (%d holds); wait until that is released", id, group, n)
}

// Free says whether an exclusive hold on the lists would succeed now.
func (h *Holds) Free(lists []BlockList) bool {
	for i := range lists {
		g := h.layout.Group(lists[i].Group)
		if g == nil {
			continue
		}
		chunks := h.domains[g.domain]
		for _, id := range lists[i].IDs {
			if id == NoBlock {
				continue
			}
			if c := chunks[id>>chunkShift]; c != nil && c[id&(chunkBlocks-1)] != 0 {
				return false
			}
		}
	}
	return true
}
