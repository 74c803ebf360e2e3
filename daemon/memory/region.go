package memory

import (
	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Kind says what kind of memory a region is. More ways to own memory (CUDA) will bring more kinds.
type Kind uint8

// Memfd is a sealed memfd of base or huge pages. Adopted memory is one, too.
const Memfd Kind = 1

func (k Kind) String() string {
	if k == Memfd {
		return "memfd"
	}
	return "unknown"
}

// Region is registered memory. It is mapped until it is removed from its space or vacated.
type Region struct {
	id    layout.RegionID
	kind  Kind
	size  uint64 // registered bytes
	bytes []byte // the registered memory; nil while the region is vacant
	skip  uint64 // bytes of the mapping before the registered ones
	whole []byte // the mapping: the whole memfd, in whole pages
	page  int    // size of its pages
	file  file
	pool  *Pool
	owner string
	warm  *warmer

	charged uint64 // what the pool and the space count for the mapping, in bytes; under the space's lock
}

// drop unmaps the region. Nobody may use it any more.
func (r *Region) drop() {
	if r.bytes == nil {
		return
	}
	r.warm.end()
	r.unload()
	// Failing to unmap our own mapping is a bug, not a condition.
	if err := sys.Munmap(r.whole); err != nil {
		panic(err)
	}
	r.pool.leave(r.owner, r.file)
	r.pool.giveBack(r.charged)
}

// unload empties the page tables in steps. While munmap walks full ones, nobody else in the process can map or unmap
// anything, and for a large region that takes seconds.
func (r *Region) unload() {
	for b := r.whole; len(b) > 0; {
		n := min(warmStep, len(b))
		sys.Unload(b[:n])
		b = b[n:]
	}
}

// slice returns the n bytes at off, or nil if they are not all inside the region.
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
	// Vacant says that there is no memory behind the region for now.
	Vacant bool
}
