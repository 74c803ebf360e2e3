package layout

// Holds on runs of adjacent blocks: an item of a pipe has thousands of them. Nearly always they are all free before
// and all held alike afterwards, so they are compared and set one lot at a time.

// lot is the counts of 64 adjacent blocks.
type lot [64]int32

var (
	nobodys = lot{}
	shareds = alike(1)
	takens  = alike(writing)
)

func alike(n int32) (l lot) {
	for i := range l {
		l[i] = n
	}
	return l
}

// oneHold returns a lot in which each block has one hold of that kind.
func oneHold(step int32) *lot {
	if step == writing {
		return &takens
	}
	return &shareds
}

// turn changes whole lots at the front of counts to to, for as long as they equal from. It returns how many counts it
// changed.
func turn(counts []int32, from, to *lot) (n int) {
	for len(counts)-n >= len(lot{}) {
		l := (*lot)(counts[n:])
		if *l != *from {
			break
		}
		*l = *to
		n += len(l)
	}
	return n
}

// acquireRun is acquire for n adjacent blocks. It returns how many it acquired.
func (h *Holds) acquireRun(chunks []*chunk, first uint32, n int, step int32) int {
	for done := 0; done < n; {
		at := first + uint32(done)
		part := h.chunk(chunks, at)[at&(chunkBlocks-1):]
		part = part[:min(len(part), n-done)]
		for i := turn(part, &nobodys, oneHold(step)); i < len(part); i++ {
			if part[i] < 0 || step == writing && part[i] != 0 {
				return done + i
			}
			part[i] += step
		}
		done += len(part)
	}
	return n
}

// releaseRun undoes acquireRun. It returns how many blocks were held that way and are released now.
func releaseRun(chunks []*chunk, first uint32, n int, step int32) int {
	for done := 0; done < n; {
		at := first + uint32(done)
		part := chunks[at>>chunkShift][at&(chunkBlocks-1):]
		part = part[:min(len(part), n-done)]
		for i := turn(part, oneHold(step), &nobodys); i < len(part); i++ {
			if part[i] == 0 || (part[i] < 0) != (step == writing) {
				return done + i
			}
			part[i] -= step
		}
		done += len(part)
	}
	return n
}
