package tcp

import "github.com/kvpipe/kvpipe/daemon/place"

// near keeps the goroutine of a stream where its memory is, on machines with several NUMA nodes. That takes a thread, of which the lot
// has a number to spare; without one the stream runs wherever it is put.
type near struct {
	places *place.Places
	lot    *lot
	seat   place.Seat
	thread bool
}

// worthMoving is the size of a slice from which on its memory is asked for.
const worthMoving = 64 << 10

func (n *near) init(t *Transport) {
	n.places, n.lot = t.cfg.Places, &t.lot
	n.seat = n.places.Seat()
}

// move goes to where the pieces of a slice's memory are, and returns that spot.
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

// leave gives the thread back, for a wait that may be long or for good.
func (n *near) leave() {
	n.seat.Leave()
	if n.thread {
		n.thread = false
		n.lot.give()
	}
}
