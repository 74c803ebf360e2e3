package ring

import "fmt"

// results hands out pieces of the results area, in the order of their completions. Offsets are free-running; a piece never
// wraps. The area holds MinResult for every entry of the queue and two more, which is what wrapping can lose.
type results struct {
	area []byte
	head uint64   // next free offset
	tail uint64   // oldest offset in use
	ends []uint64 // by entry: where its piece ends
}

func newResults(area []byte, entries uint32) results {
	return results{area: area, ends: make([]uint64, entries)}
}

// place returns where a piece of n bytes would begin.
func (r *results) place(n int) uint64 {
	size := uint64(len(r.area))
	off := r.head
	if off&(size-1)+uint64(n) > size {
		off = (off + size - 1) &^ (size - 1)
	}
	return off
}

// room returns the largest piece that leaves MinResult for each of the other free entries.
func (r *results) room(entries uint32) int {
	if entries == 0 {
		return 0
	}
	size := uint64(len(r.area))
	keep := uint64(entries-1+2) * MinResult
	free := size - (r.head - r.tail)
	if free < keep+MinResult {
		return MinResult
	}
	// Up to the wrap, or from the start after losing what is left before it.
	n := free - keep
	if left := size - r.head&(size-1); n > left {
		n = max(left, n-left)
	}
	return int(max(n, MinResult) &^ 7)
}

// put copies a piece and returns its offset; entry i holds it. An empty piece takes no room.
func (r *results) put(i uint32, b []byte) uint64 {
	if len(b) == 0 {
		r.ends[i] = r.head
		return 0
	}
	off := r.place(len(b))
	end := (off + uint64(len(b)) + 7) &^ 7
	if end-r.tail > uint64(len(r.area)) {
		panic(fmt.Sprintf("ring: result of %d bytes does not fit: more than Room", len(b)))
	}
	copy(r.area[off&uint64(len(r.area)-1):], b)
	r.head = end
	r.ends[i] = end
	return off
}

// free takes back the pieces up to and with entry i's. When nothing is left the area begins anew at its start, which keeps
// a session whose results are few in few pages.
func (r *results) free(i uint32, all bool) {
	r.tail = r.ends[i]
	if size := uint64(len(r.area)); all && r.head&(size-1) != 0 {
		r.head = (r.head + size - 1) &^ (size - 1)
		r.tail = r.head
	}
}
