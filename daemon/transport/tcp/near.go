package tcp

import "github.com/kvpipe/kvpipe/daemon/place"

// near keeps the goroutine of a stream near the memory that it moves, on machines with several NUMA nodes. That needs
// one of the lot's threads. If none is free, the stream runs wherever it is scheduled.
type near struct {
	places *place.Places
	lot    *lot
	seat   place.Seat
	thread bool
}

// worthMoving is the slice size from which near asks where the memory lies.
const worthMoving = 64 << 10

func (n *near) init(t *Transport) {
	n.places, n.lot = t.cfg.Places, &t.lot
	n.seat = n.places.Seat()
}

// move goes to the spot where the pieces of a slice's memory are, and returns that spot. It skips the first from
// pieces.
func (n *near) move(p *pieces, from int, length uint32) (spot int) {
	if n.places == nil || length < worthMoving {
		return place.Anywhere
	}
	iov := p.iov[from:]
	spot = n.places.OfPieces(len(iov), func(i int) []byte { return iov[i].Bytes() })
	if spot == place.Anywhere || spot == n.seat.At() {
		return spot
	}
	n.thread = n.thread || n.lot.take()
	if n.thread {
		n.seat.Take(spot)
	}
	return spot
}

// leave gives the thread back, before a wait that may be long or at the end.
func (n *near) leave() {
	n.seat.Leave()
	if n.thread {
		n.thread = false
		n.lot.give()
	}
}
