package pulse

import "sync/atomic"

// Beat is the sign of life of a goroutine that waits for others, such as a peer, where nothing can wake it to answer.
// That goroutine calls Rest, Rise and Tick; the one that looks after it calls Alive. The zero value works.
type Beat struct {
	n    atomic.Uint64 // odd: it rests
	seen uint64        // n at the last Alive, plus one
}

// Rest says that the goroutine waits for others from now on.
func (b *Beat) Rest() { b.n.Add(1) }

// Rise says that the goroutine goes on after Rest.
func (b *Beat) Rise() { b.n.Add(1) }

// Tick says that the goroutine has done a piece of work.
func (b *Beat) Tick() { b.n.Add(2) }

// Alive reports whether the goroutine waits for others, or has got any further since the last Alive.
func (b *Beat) Alive() bool {
	n := b.n.Load()
	ok := n%2 == 1 || n+1 != b.seen
	b.seen = n + 1
	return ok
}
