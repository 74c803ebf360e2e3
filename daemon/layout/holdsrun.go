package layout

// Holds on runs of adjacent blocks, which an item of a pipe has thousands of. Nearly always all of them are free before and held
// alike afterwards, so they are compared and set a lot at a time.

// lot is the counts of some neighbours.
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

// oneHold is a lot that has one hold of that kind.
func oneHold(step int32) *lot {
	if step == writing {
		return &takens
	}
	return &shareds
}

// turn changes whole lots at the front of the counts, as long as they are as from says; it returns how many counts that are.
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

// acquireRun is acquire for n adjacent blocks; it returns how many it could hold.
func acquireRun(chunks []*chunk, first uint32, n int, step int32) int {
	for done := 0; done < n; {
		at := first + uint32(done)
		c := chunks[at>>chunkShift]
		if c == nil {
			c = new(chunk)
			chunks[at>>chunkShift] = c
		}
		part := c[at&(chunkBlocks-1):]
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

// releaseRun undoes it; it returns how many of them were held so.
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
