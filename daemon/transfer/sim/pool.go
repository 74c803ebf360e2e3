package sim

import "slices"

// pool has the free block ids of a session that submits. A scheduler's ids are the same in all ranks, whichever
// process a rank is.
type pool struct{ free []uint32 }

func newPool() *pool {
	p := &pool{free: make([]uint32, numBlocks)}
	for i := range p.free {
		p.free[i] = uint32(i)
	}
	return p
}

// alloc takes n free blocks; nil if there are fewer.
func (s *Session) alloc(n int) []uint32 {
	p, c := s.pool, s.eng.c
	if len(p.free) < n {
		return nil
	}
	if c.fixed {
		ids := slices.Clone(p.free[:n])
		p.free = slices.Delete(p.free, 0, n)
		return ids
	}
	ids := make([]uint32, n)
	for i := range ids {
		k := c.rng.n(len(p.free))
		ids[i] = p.free[k]
		p.free[k] = p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
	}
	return ids
}
