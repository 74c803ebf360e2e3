package memory

import (
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

// Region is registered memory, mapped until it is removed from its space or vacated.
type Region struct {
	id    layout.RegionID
	kind  Kind
	size  uint64 // bytes that were registered
	bytes []byte // them; nil while it is vacant
	skip  uint64 // bytes of the mapping before it
	whole []byte // the mapping: the whole memfd, in whole pages
	page  int    // their size
	file  file
	pool  *Pool
	owner string
	warm  *warmer

	charged uint64 // bytes that the pool and the space account for, those of the mapping; under the space's lock
}

// drop unmaps it. Nobody uses it any more.
func (r *Region) drop() {
	if r.bytes == nil {
		return
	}
	r.warm.end()
	r.unload()
	// A mapping of ours that cannot be unmapped is a bug, not a condition.
	if err := sys.Munmap(r.whole); err != nil {
		panic(err)
	}
	r.pool.use(r.owner, r.file, -1)
	r.pool.giveBack(r.charged)
}

// unload empties the page tables. While munmap walks full ones nobody else in the process can map or unmap anything: seconds, of a large region.
func (r *Region) unload() {
	for b := r.whole; len(b) > 0; {
		n := min(warmStep, len(b))
		sys.Unload(b[:n])
		b = b[n:]
	}
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
	// Vacant: there is no memory behind it for now.
	Vacant bool
}
