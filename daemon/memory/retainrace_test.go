package memory

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/internal/sys"
)

func nothing(func(layout.RegionID, uint64, uint64)) {}

// TestRegisterWhileRetained: a memfd of which a dead session's pages are being given back comes from another session, which may write it from
// then on. It is whole and stays so, or is refused.
func TestRegisterWhileRetained(t *testing.T) {
	const size = 4 * 4096
	pool := NewPool(Limits{})
	dead, alive := NewSpace(pool, ""), NewSpace(pool, "")
	defer dead.Close()
	defer alive.Close()
	fd := memfd(t, size, good)
	_, err := dead.Register(fd, size)
	noErr(t, err)
	came, began := make(chan error, 1), false
	pool.punch = func(b []byte) error {
		if !began {
			began = true
			go func() { _, err := alive.Register(fd, size); came <- err }()
			awaitRegions(pool, dead, 2)
		}
		return sys.Punch(b)
	}
	_, err = dead.Retain(nothing)
	noErr(t, err)
	if err := <-came; err == nil && allocated(t, fd) != size {
		t.Errorf("registered, and %d of %d bytes are left", allocated(t, fd), size)
	} else if err != nil && !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// awaitRegions returns when so many regions are noted in the memfd of the space's first one.
func awaitRegions(pool *Pool, s *Space, n int) {
	f := (*s.regions.Load())[0].file
	for noted := 0; noted != n; runtime.Gosched() {
		pool.mu.Lock()
		noted = pool.files[f]
		pool.mu.Unlock()
	}
}

// TestRetainHoldsUpNobodyElse: a client can make it take long that a memfd's pages are given back, for it can write that file. Who registers the
// same one waits for it alone.
func TestRetainHoldsUpNobodyElse(t *testing.T) { synctest.Test(t, retainHoldsUp) }

func retainHoldsUp(t *testing.T) {
	const size = 2 * 4096
	pool := NewPool(Limits{TotalBytes: 10 * size})
	dead, same, other := NewSpace(pool, ""), NewSpace(pool, ""), NewSpace(pool, "")
	for _, s := range []*Space{dead, same, other} {
		defer s.Close()
	}
	fd := memfd(t, size, good)
	_, err := dead.Register(fd, size)
	noErr(t, err)
	inside, release := make(chan struct{}), make(chan struct{})
	pool.punch = func(b []byte) error {
		close(inside)
		<-release
		return sys.Punch(b)
	}
	retained, came := make(chan error, 1), make(chan error, 1)
	go func() { _, err := dead.Retain(nothing); retained <- err }()
	<-inside
	if got := pool.Bytes(); got != size {
		t.Errorf("%d bytes are accounted for, want %d", got, size)
	}
	pool.SetLimits(pool.Limits())
	id, err := other.Register(memfd(t, size, good), size)
	noErr(t, err)
	noErr(t, other.Remove(id))
	go func() { _, err := same.Register(fd, size); came <- err }()
	synctest.Wait()
	select {
	case err := <-came:
		t.Errorf("the same memfd was registered while its pages went: %v", err)
		came <- err
	default:
	}
	close(release)
	noErr(t, <-retained)
	if err := <-came; !errors.Is(err, ErrInvalid) {
		t.Errorf("a memfd without pages was registered: %v", err)
	}
	if pool.Bytes() != 0 || len(pool.files) != 0 || pool.mapped != 0 {
		t.Errorf("after the refusal %d bytes, %d files and %d regions are accounted for", pool.Bytes(), len(pool.files), pool.mapped)
	}
	if len(pool.punched) != 0 {
		t.Errorf("pages of %d files still go", len(pool.punched))
	}
}

// TestRetainStops: once another region lies in a memfd, no more of it is given back.
func TestRetainStops(t *testing.T) {
	const page, size = 4096, 4 * 4096
	pool := NewPool(Limits{})
	s := NewSpace(pool, "")
	defer s.Close()
	fd := memfd(t, size, good)
	id, err := s.Register(fd, size)
	noErr(t, err)
	f := s.find(id).file
	pool.punch = func(b []byte) error {
		pool.mu.Lock()
		pool.files[f]++
		pool.mu.Unlock()
		return sys.Punch(b)
	}
	kept, err := s.Retain(func(mark func(layout.RegionID, uint64, uint64)) { mark(id, page, 1) })
	pool.mu.Lock()
	pool.files[f]--
	pool.mu.Unlock()
	if got := allocated(t, fd); err != nil || kept != size-page || got != size-page || pool.Bytes() != size-page {
		t.Errorf("%d bytes kept, %d allocated, %d accounted for, %v", kept, got, pool.Bytes(), err)
	}
}

// TestRetainUnmapsLast: what can be found is mapped.
func TestRetainUnmapsLast(t *testing.T) {
	const size = 4096
	pool := NewPool(Limits{})
	s := NewSpace(pool, "")
	defer s.Close()
	var ids [2]layout.RegionID
	for i := range ids {
		id, err := s.Register(memfd(t, size, good), size)
		noErr(t, err)
		ids[i] = id
	}
	pool.punch = func(b []byte) error {
		for i, id := range ids {
			if found, ok := s.Resolve(id, 0, size); ok {
				if err := sys.Protect(found, sys.ProtWrite); err != nil {
					t.Errorf("region %d is found and not mapped: %v", i, err)
				}
			}
		}
		return sys.Punch(b)
	}
	_, err := s.Retain(nothing)
	noErr(t, err)
	if all := s.Regions(); len(all) != 0 {
		t.Errorf("left: %v", all)
	}
}
