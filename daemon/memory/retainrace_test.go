package memory

import (
	"errors"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/internal/sys"
)

func nothing(func(layout.RegionID, uint64, uint64)) {}

// TestRegisterWhileRetained: a memfd of which a dead session's pages are being given back comes from another session, which may write it from
// then on. It is whole and stays so, or is refused.
func TestRegisterWhileRetained(t *testing.T) {
	const size = 4 * 4096
	pool := NewPool(Limits{})
	dead, alive := NewSpace(pool), NewSpace(pool)
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
		}
		if pool.mu.TryLock() {
			pool.mu.Unlock()
			t.Error("who registers the memfd does not wait for the pages that go now")
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

// TestRetainStops: once another region lies in a memfd, no more of it is given back.
func TestRetainStops(t *testing.T) {
	const page, size = 4096, 4 * 4096
	pool := NewPool(Limits{})
	s := NewSpace(pool)
	defer s.Close()
	fd := memfd(t, size, good)
	id, err := s.Register(fd, size)
	noErr(t, err)
	f := s.find(id).file
	pool.punch = func(b []byte) error {
		pool.files[f]++
		return sys.Punch(b)
	}
	kept, err := s.Retain(func(mark func(layout.RegionID, uint64, uint64)) { mark(id, page, 1) })
	pool.use(f, -1)
	if got := allocated(t, fd); err != nil || kept != size-page || got != size-page || pool.Bytes() != size-page {
		t.Errorf("%d bytes kept, %d allocated, %d accounted for, %v", kept, got, pool.Bytes(), err)
	}
}

// TestRetainUnmapsLast: what can be found is mapped.
func TestRetainUnmapsLast(t *testing.T) {
	const size = 4096
	pool := NewPool(Limits{})
	s := NewSpace(pool)
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
