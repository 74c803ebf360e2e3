package memory

import (
	"sync/atomic"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Kind says what stands behind a region. More kinds come with more ways to own memory (CUDA).
type Kind uint8

// Memfd is a sealed memfd of base or huge pages. Adopted memory is one, too.
const Memfd Kind = 1

func (k Kind) String() string {
	if k == Memfd {
		return "memfd"
	}
	return "unknown"
}

// Region is registered memory. It is mapped until it was removed from its space and the last user released it.
type Region struct {
	id    layout.RegionID
	kind  Kind
	bytes []byte // what was registered
	skip  uint64 // bytes of the mapping before it
	whole []byte // the mapping, whole pages
	page  int    // their size
	file  file
	pool  *Pool
	warm  *warmer

	charged uint64       // bytes that the pool and the space account for; under the space's lock until the last use ends
	refs    atomic.Int64 // the space's own and one for each user
}

// acquire adds a user unless the region is unmapped already.
func (r *Region) acquire() bool {
	for {
		n := r.refs.Load()
		if n == 0 {
			return false
		}
		if r.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release ends one use; the last one unmaps.
func (r *Region) release() {
	if n := r.refs.Add(-1); n > 0 {
		return
	} else if n < 0 {
		panic("memory: region released more often than acquired")
	}
	// A mapping of ours that cannot be unmapped is a bug, not a condition.
	if err := sys.Munmap(r.whole); err != nil {
		panic(err)
	}
	r.pool.use(r.file, -1)
	r.pool.giveBack(r.charged)
}

// drop ends the space's own use.
func (r *Region) drop() {
	r.warm.end()
	r.release()
}

// slice returns the n bytes at off; nil when they are not all inside.
func (r *Region) slice(off, n uint64) []byte {
	size := uint64(len(r.bytes))
	if off > size || n > size-off {
		return nil
	}
	return r.bytes[off : off+n : off+n]
}

// Info describes a region to people.
type Info struct {
	ID    layout.RegionID
	Kind  Kind
	Bytes uint64
	Users int // transfers that hold it
}
