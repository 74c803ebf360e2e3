package memory

import (
	"fmt"
	"math"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// A region may be vacant for a while. It keeps its name and size, but its memory goes back to its owner and costs no
// quota. Nothing resolves in it until it is occupied again.

// Vacate unmaps a region and keeps its name. Whatever used it must have ended before. Vacating again changes nothing.
func (s *Space) Vacate(id layout.RegionID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(id)
	if r == nil {
		return notFound(id)
	}
	if r.bytes == nil {
		return nil
	}
	s.replace(&Region{id: r.id, kind: r.kind, size: r.size, skip: r.skip})
	s.used.Add(-r.charged)
	r.drop()
	return nil
}

// Occupy maps the memory of a vacant region again. It judges the memfd and asks for quota as RegisterAfter does. Doing
// so again with the same memfd changes nothing.
func (s *Space) Occupy(id layout.RegionID, fd int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	vacant := s.find(id)
	switch {
	case s.closed:
		return ErrClosed
	case vacant == nil:
		return notFound(id)
	case vacant.bytes != nil:
		if info, err := sys.Identify(fd); err == nil && (file{info.Dev, info.Ino}) == vacant.file {
			return nil
		}
		return fmt.Errorf("%w: region %#x has other memory already", ErrInvalid, uint64(id))
	}
	r, err := s.fill(*vacant, fd, s.count-1)
	if err != nil {
		return err
	}
	s.replace(r)
	return nil
}

// RegisterVacant names a region of n bytes after the first skip of a memfd, without its memory.
func (s *Space) RegisterVacant(skip uint32, n uint64) (layout.RegionID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, ErrClosed
	}
	if n == 0 || n > math.MaxInt64-math.MaxUint32 {
		return 0, fmt.Errorf("%w: bytes is %d: must be 1 to %d", ErrInvalid, n, uint64(math.MaxInt64-math.MaxUint32))
	}
	if err := s.pool.reserve(s.owner, 0, 0, 0, s.count); err != nil { // the limit on the number of regions still applies
		return 0, err
	}
	return s.list(&Region{kind: Memfd, skip: uint64(skip), size: n}), nil
}

// replace puts r in the place of the region with the same name.
func (s *Space) replace(r *Region) {
	regions := append([]*Region(nil), *s.regions.Load()...)
	regions[uint32(r.id)] = r
	s.regions.Store(&regions)
}
