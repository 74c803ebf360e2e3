package memory

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// Space is the memory of one session.
type Space struct {
	pool  *Pool
	owner string

	mu     sync.Mutex
	gens   []uint32 // by index: generation of its present or last region
	count  int
	closed bool

	used atomic.Uint64 // bytes kept; changed under mu

	// Readers resolve without the lock: the slice is replaced, never changed. An element may be nil.
	regions atomic.Pointer[[]*Region]
}

// NewSpace returns an empty space of owner that draws on pool.
func NewSpace(pool *Pool, owner string) *Space {
	s := &Space{pool: pool, owner: owner}
	s.regions.Store(new([]*Region))
	return s
}

// Register maps the memfd fd and names its first n bytes. The caller keeps fd. Each registration costs the whole memfd,
// since the mapping keeps all of it. Errors are ErrInvalid (what the descriptor is and what it must be), ErrQuota or
// ErrClosed.
func (s *Space) Register(fd int, n uint64) (layout.RegionID, error) { return s.RegisterAfter(fd, 0, n) }

// RegisterAfter is Register for the n bytes after the first skip: memory that existed before it became part of a memfd
// need not begin at a page boundary.
func (s *Space) RegisterAfter(fd int, skip uint32, n uint64) (layout.RegionID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, ErrClosed
	}
	r, err := s.fill(Region{kind: Memfd, skip: uint64(skip), size: n}, fd, s.count)
	if err != nil {
		return 0, err
	}
	return s.list(r), nil
}

// fill maps the memory of a region that is described by of, for a session with count other regions.
func (s *Space) fill(of Region, fd, count int) (*Region, error) {
	m, err := look(fd, uint32(of.skip), of.size)
	if err != nil {
		return nil, err
	}
	if err := s.pool.reserve(s.owner, of.size, m.size, s.used.Load(), count); err != nil {
		return nil, err
	}
	s.pool.use(m.file)
	whole, err := m.mapWhole(of)
	if err != nil {
		s.pool.leave(s.owner, m.file)
		s.pool.giveBack(m.size)
		return nil, err
	}
	r := of
	end := of.skip + of.size
	r.bytes = whole[of.skip:end:end]
	r.whole, r.page, r.file, r.pool, r.owner, r.charged = whole, int(m.page), m.file, s.pool, s.owner, m.size
	r.warm = s.pool.warm(whole[:wholePages(end, m.page)])
	s.used.Add(m.size)
	return &r, nil
}

// list gives a region its name and lets it be found.
func (s *Space) list(r *Region) layout.RegionID {
	regions := append([]*Region(nil), *s.regions.Load()...)
	index := 0
	for index < len(regions) && regions[index] != nil {
		index++
	}
	if index == len(regions) {
		regions = append(regions, nil)
		s.gens = append(s.gens, 0)
	}
	s.gens[index]++
	r.id = layout.RegionID(uint64(s.gens[index])<<32 | uint64(index))
	regions[index] = r
	s.regions.Store(&regions)
	s.count++
	return r.id
}

// Remove takes a region out of the space and unmaps it. Whatever used it must have ended before.
func (s *Space) Remove(id layout.RegionID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(id)
	if r == nil {
		return notFound(id)
	}
	regions := append([]*Region(nil), *s.regions.Load()...)
	regions[uint32(id)] = nil
	s.regions.Store(&regions)
	s.used.Add(-r.charged)
	s.count--
	r.drop()
	return nil
}

// Close removes all regions as Remove does, and refuses new ones. Closing again does nothing.
func (s *Space) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	regions := *s.regions.Swap(new([]*Region))
	for _, r := range regions {
		if r != nil {
			r.drop()
		}
	}
	s.count = 0
	s.used.Store(0)
}

// Resolve returns the n bytes at off of a region. ok is false when there is no such region, or it is too small or
// vacant. The bytes stay mapped until Remove, Vacate or Close.
func (s *Space) Resolve(id layout.RegionID, off, n uint64) (b []byte, ok bool) {
	r := s.find(id)
	if r == nil {
		return nil, false
	}
	b = r.slice(off, n)
	return b, b != nil
}

// Size returns the size of a region in bytes. ok is false when there is no such region.
func (s *Space) Size(id layout.RegionID) (n uint64, ok bool) {
	if r := s.find(id); r != nil {
		return r.size, true
	}
	return 0, false
}

// Used returns how many bytes the regions keep: all of their memfds, or what Retain has left of them.
func (s *Space) Used() uint64 {
	return s.used.Load()
}

// Regions describes the regions, in the order of their index.
func (s *Space) Regions() []Info {
	var all []Info
	for _, r := range *s.regions.Load() {
		if r != nil {
			all = append(all, Info{ID: r.id, Kind: r.kind, Bytes: r.size, Vacant: r.bytes == nil})
		}
	}
	return all
}

func (s *Space) find(id layout.RegionID) *Region {
	regions := *s.regions.Load()
	if i := uint64(uint32(id)); i < uint64(len(regions)) && regions[i] != nil && regions[i].id == id {
		return regions[i]
	}
	return nil
}

func notFound(id layout.RegionID) error {
	return fmt.Errorf("%w: region %#x (index %d, generation %d) is not registered", ErrNotFound, uint64(id), uint32(id), uint64(id)>>32)
}
