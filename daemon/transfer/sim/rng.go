package sim

import "github.com/kvpipe/kvpipe/daemon/transfer"

// rng is splitmix64: small, fast and the same everywhere.
type rng uint64

func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	return mix(uint64(*r))
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// n draws from 0 .. most-1.
func (r *rng) n(most int) int { return int(r.next() % uint64(most)) }

// in draws from lo .. hi, both included.
func (r *rng) in(lo, hi int) int { return lo + r.n(hi-lo+1) }

// hit is true in percent of all cases.
func (r *rng) hit(percent int) bool { return r.n(100) < percent }

// span draws a duration from lo to hi.
func (r *rng) span(lo, hi transfer.Time) transfer.Time {
	return lo + transfer.Time(r.next()%uint64(hi-lo+1))
}

func pick[T any](r *rng, from []T) T { return from[r.n(len(from))] }
