package ring

import (
	"fmt"
	"sync/atomic"
)

// Submissions is the daemon's end of the submission queue with the records that its entries point to.
type Submissions struct {
	tail    *atomic.Uint32 // ring_c
	head    *atomic.Uint32 // ring_d
	wake    *atomic.Uint32 // ring_d
	entries []byte
	records []byte
	mask    uint32
	next    uint32 // private copy of head
	sleep   uint32 // number of the last sleep
}

// NewSubmissions works on the memory of the two rings.
func NewSubmissions(g *Geometry, ringC, ringD []byte) *Submissions {
	return &Submissions{
		tail:    word32(ringC, offSQTail),
		head:    word32(ringD, offSQHead),
		wake:    word32(ringD, offNeedWakeup),
		entries: area(ringC, g.sq, int(g.SQ)*SQESize),
		records: area(ringC, g.records, int(g.Sizes.Records)),
		mask:    g.SQ - 1,
	}
}

// Next copies the oldest entry into e, if there is one. Until Advance, each call reads the same slot.
func (q *Submissions) Next(e *SQE) (ok bool, err error) {
	var tail uint32
	fault := guard(func() {
		tail = q.tail.Load()
		if n := tail - q.next; n != 0 && n <= q.mask+1 {
			e.Load(q.entries[int(q.next&q.mask)*SQESize:])
			ok = true
		}
	})
	if fault != nil {
		return false, fault
	}
	if n := tail - q.next; n > q.mask+1 {
		return false, fmt.Errorf("%w: sq_tail %d is %d entries ahead of sq_head %d, the ring has %d", ErrIndex, tail, n, q.next, q.mask+1)
	}
	return ok, nil
}

// Pending reports whether Next would return an entry or an error.
func (q *Submissions) Pending() bool {
	pending := true
	if guard(func() { pending = q.tail.Load() != q.next }) != nil {
		return true
	}
	return pending
}

// Tail returns how many entries the client says it has published, modulo 2^32. Unlike the other methods it may run
// beside them.
func (q *Submissions) Tail() (tail uint32) {
	_ = guard(func() { tail = q.tail.Load() })
	return tail
}

// Advance gives the entry of Next and its record back to the client.
func (q *Submissions) Advance() {
	q.next++
	q.head.Store(q.next)
}

// Head returns how many entries were consumed, modulo 2^32.
func (q *Submissions) Head() uint32 { return q.next }

// Arm asks the client to ring once from now on and reports whether it is safe to sleep. False means that an entry came
// meanwhile; the request is then withdrawn.
func (q *Submissions) Arm() bool {
	q.sleep = nextSleep(q.sleep)
	q.wake.Store(q.sleep)
	// The client stores its tail, then reads wake. Here wake is stored first, then the tail is read: one of the two
	// sees the other.
	if q.Pending() {
		q.wake.Store(0)
		return false
	}
	return true
}

// Disarm tells the client that it need not ring.
func (q *Submissions) Disarm() {
	if q.wake.Load() != 0 { // ring_d is ours: a plain load is cheaper than another store to a shared line
		q.wake.Store(0)
	}
}

// Locate judges where a record of n bytes lies, at the free-running offset off, without touching it.
func (q *Submissions) Locate(off uint64, n uint32) (at uint64, err error) {
	size := uint64(len(q.records))
	at = off & (size - 1)
	if off%8 != 0 || uint64(n) > size-at {
		return 0, fmt.Errorf("%w: record of %d bytes at offset %d: must be 8-byte aligned and not wrap in %d bytes", ErrIndex, n, off, size)
	}
	return at, nil
}

// Record copies the n bytes at the free-running offset off into dst, growing it if needed, and returns them.
func (q *Submissions) Record(dst []byte, off uint64, n uint32) ([]byte, error) {
	at, err := q.Locate(off, n)
	if err != nil {
		return nil, err
	}
	if cap(dst) < int(n) {
		dst = make([]byte, n)
	}
	dst = dst[:n]
	if err := guard(func() { copy(dst, q.records[at:]) }); err != nil {
		return nil, fmt.Errorf("record of %d bytes at offset %d: %w", n, off, err)
	}
	return dst, nil
}
