// Package lists draws the block lists that every benchmark program uses.
// bench/ref/list.h does the same in C: given the same seed, pool and length,
// both yield the same blocks in the same order.
package lists

// Dst is added to the seed for the destination side's list.
const Dst = 0x9e3779b9

// SplitMix64 steps x and returns the next number of the splitmix64 sequence.
func SplitMix64(x *uint64) uint64 {
	*x += 0x9e3779b97f4a7c15
	z := *x
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// Draw returns n different block numbers below pool: the first n of a
// Fisher-Yates permutation of 0..pool-1. It panics if n is larger than pool.
func Draw(seed uint64, pool, n int) []uint32 {
	p := make([]uint32, pool)
	for i := range p {
		p[i] = uint32(i)
	}
	for i := pool - 1; i > 0; i-- {
		j := int(SplitMix64(&seed) % uint64(i+1))
		p[i], p[j] = p[j], p[i]
	}
	return p[:n]
}

// Digest folds a list into one number, to compare lists across programs.
func Digest(ids []uint32) uint64 {
	d := uint64(len(ids))
	for _, id := range ids {
		x := d ^ uint64(id)
		d = SplitMix64(&x)
	}
	return d
}
