package ring

import "fmt"

// results hands out pieces of the results area in the order of their completions. Offsets are free-running; a piece
// never wraps. The area holds MinResult for every entry of the queue and two more, which is what wrapping can lose.
//
// Each entry in use is charged at least MinResult, even if its piece is smaller. Were the difference lent to a later,
// large piece, the entry would be free again before its MinResult is.
type results struct {
	area    []byte
	head    uint64   // next free offset
	tail    uint64   // oldest offset in use
	ends    []uint64 // by entry: where its piece ends
	charges []uint64 // by entry: what it is charged, including what a large piece lost by wrapping
	charged uint64   // their sum, over the entries in use
}

func newResults(area []byte, entries uint32) results {
	r := results{area: area, ends: make([]uint64, entries), charges: make([]uint64, entries)}
	// Touch their pages now, so that the kernel need not supply them while completions wait.
	clear(r.ends)
	clear(r.charges)
	return r
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

// room returns the largest piece that leaves MinResult for each other entry, at once or when it is free again. entries
// are free now.
func (r *results) room(entries uint32) int {
	if entries == 0 {
		return 0
	}
	size := uint64(len(r.area))
	n := size - r.charged - uint64(entries-1+2)*MinResult
	// A piece fits before the wrap, or at the start of the area, which loses what is left before the wrap.
	if left := size - r.head&(size-1); n > left {
		n = max(left, n-left)
	}
	return int(max(n, MinResult) &^ 7)
}

// put copies b into a piece for entry i and returns its offset. An empty piece takes no room.
func (r *results) put(i uint32, b []byte) uint64 {
	if len(b) == 0 {
		r.charge(i, r.head, MinResult)
		return 0
	}
	off := r.place(len(b))
	end := (off + uint64(len(b)) + 7) &^ 7
	if end-r.tail > uint64(len(r.area)) {
		panic(fmt.Sprintf("ring: result of %d bytes does not fit: more than Room", len(b)))
	}
	copy(r.area[off&uint64(len(r.area)-1):], b)
	if len(b) <= MinResult {
		r.charge(i, end, MinResult)
	} else {
		r.charge(i, end, end-r.head)
	}
	return off
}

// charge gives the bytes up to end to entry i and charges it n for them.
func (r *results) charge(i uint32, end, n uint64) {
	r.head, r.ends[i], r.charges[i] = end, end, n
	r.charged += n
}

// free takes back entry i's piece, the oldest one. After the last one the area begins anew at its start, so that a
// session with few results uses few pages.
func (r *results) free(i uint32, last bool) {
	r.tail = r.ends[i]
	r.charged -= r.charges[i]
	if size := uint64(len(r.area)); last && r.head&(size-1) != 0 {
		r.head = (r.head + size - 1) &^ (size - 1)
		r.tail = r.head
	}
}
