package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrFull says that the completion queue has no room. A caller that counts credits never gets it.
var ErrFull = errors.New("completion queue is full")

// Completions is the daemon's end of the completion queue with the results that its entries point to.
type Completions struct {
	head    *atomic.Uint32 // ring_c
	waiting *atomic.Uint32 // ring_c
	tail    *atomic.Uint32 // ring_d
	entries []byte
	mask    uint32
	next    uint32 // private copy of tail
	done    uint32 // private copy of head
	marked  []bool // by entry: the mark that Put was given
	results results
	bell    bell
}

// NewCompletions works on the memory of the two rings.
func NewCompletions(g *Geometry, ringC, ringD []byte) *Completions {
	return &Completions{
		head:    word32(ringC, offCQHead),
		waiting: word32(ringC, offCQWaiting),
		tail:    word32(ringD, offCQTail),
		entries: area(ringD, g.cq, int(g.CQ)*CQESize),
		mask:    g.CQ - 1,
		marked:  make([]bool, g.CQ),
		results: newResults(area(ringD, g.results, int(g.Results)), g.CQ),
	}
}

// Forget gives back what is kept for each entry. Only Tail and Outstanding may be called after it.
func (q *Completions) Forget() { q.entries, q.marked, q.results = nil, nil, results{} }

// Room returns how many bytes the next Put's result may have: at least MinResult, unless the queue is full.
func (q *Completions) Room() int { return q.results.room(q.mask + 1 - q.Outstanding()) }

// Put publishes one completion. It copies result, which may have Room bytes, and sets e.ResultOff and e.ResultLen.
// Consumed counts marked completions apart. On ErrFull nothing was written.
func (q *Completions) Put(e *CQE, result []byte, mark bool) error {
	if q.Outstanding() > q.mask {
		return ErrFull
	}
	i := q.next & q.mask
	err := guard(func() {
		e.ResultOff, e.ResultLen = q.results.put(i, result), uint32(len(result))
		e.Store(q.entries[int(i)*CQESize:])
	})
	if err != nil {
		return err
	}
	q.marked[i] = mark
	q.next++
	q.tail.Store(q.next)
	return nil
}

// Waiting reports whether the client sleeps and must be woken; the caller then rings its eventfd. Call it after Put:
// that order keeps both sides from sleeping.
func (q *Completions) Waiting() bool {
	asleep := uint32(always)
	if guard(func() { asleep = q.waiting.Load() }) != nil {
		return true
	}
	return q.bell.due(asleep)
}

// Dozing reports whether the client is in a numbered sleep for which nobody has rung yet. The caller then rings its
// eventfd, although no completion is there yet: the client looks, and takes a new number before it sleeps again. A
// client that wants to be rung for everything that is published is not rung for nothing.
func (q *Completions) Dozing() bool {
	asleep := uint32(0)
	if guard(func() { asleep = q.waiting.Load() }) != nil {
		return false
	}
	return asleep > always && q.bell.due(asleep)
}

// Consumed reads the client's head and returns how many completions the client has consumed since the last call: those
// that Put marked, and the others. Their results become reusable.
func (q *Completions) Consumed() (marked, others int, err error) {
	var head uint32
	if err := guard(func() { head = q.head.Load() }); err != nil {
		return 0, 0, err
	}
	n := head - q.done
	if n == 0 {
		return 0, 0, nil
	}
	if n > q.Outstanding() {
		return 0, 0, fmt.Errorf("%w: cq_head %d is not between %d and %d", ErrIndex, head, q.done, q.next)
	}
	for q.done != head {
		i := q.done & q.mask
		if q.marked[i] {
			marked++
		} else {
			others++
		}
		q.done++
		q.results.free(i, q.done == q.next)
	}
	return marked, others, nil
}

// Abandon counts everything that was published as consumed, whatever the client says, and returns how many of these
// completions Put had not marked. Consumed must not be used after it.
func (q *Completions) Abandon() (others int) {
	for ; q.done != q.next; q.done++ {
		if i := q.done & q.mask; !q.marked[i] {
			others++
		}
	}
	return others
}

// Outstanding returns how many of the published completions the client had not consumed at the last Consumed.
func (q *Completions) Outstanding() uint32 { return q.next - q.done }

// Tail returns how many completions were published, modulo 2^32.
func (q *Completions) Tail() uint32 { return q.next }
