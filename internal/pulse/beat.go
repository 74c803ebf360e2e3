package pulse

import "sync/atomic"

// Beat is the sign of life of a goroutine that waits for others, such as a peer, where nothing can wake it to answer. Rest, Rise and
// Tick are for that goroutine, Alive for one that looks after it. The zero value works.
type Beat struct {
	n    atomic.Uint64 // odd: it rests
	seen uint64        // by Alive, and one more
}

// Rest says that the goroutine waits for others from now on; Rise, that it goes on.
func (b *Beat) Rest() { b.n.Add(1) }

// Rise ends what Rest began.
func (b *Beat) Rise() { b.n.Add(1) }

// Tick says that the goroutine has done a piece of work.
func (b *Beat) Tick() { b.n.Add(2) }

// Alive tells whether the goroutine waits for others or has come any further since Alive was asked last.
func (b *Beat) Alive() bool {
	n := b.n.Load()
	ok := n%2 == 1 || n+1 != b.seen
	b.seen = n + 1
	return ok
}
