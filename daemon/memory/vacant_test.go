package memory

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestVacate: a region without memory keeps its name and size, costs nothing, and gets other memory of the same size.
func TestVacate(t *testing.T) {
	const size = 2 * 4096
	pool := NewPool(Limits{SessionBytes: size, Regions: 1})
	s := NewSpace(pool, "")
	defer s.Close()
	fd := memfd(t, size, good)
	id, err := s.RegisterAfter(fd, 64, size-64)
	noErr(t, err)
	for range 2 { // again changes nothing
		noErr(t, s.Vacate(id))
		if n, there := s.Size(id); n != size-64 || !there || s.Used() != 0 || pool.Bytes() != 0 {
			t.Fatalf("a vacant region has %d bytes (there: %v), %d are accounted for", n, there, pool.Bytes())
		}
		if _, ok := s.Resolve(id, 0, 1); ok {
			t.Fatal("a byte of a vacant region resolves")
		}
		if all := s.Regions(); len(all) != 1 || !all[0].Vacant || all[0].Bytes != size-64 {
			t.Fatalf("%+v", all)
		}
	}
	if _, err := s.Register(fd, 1); !errors.Is(err, ErrQuota) {
		t.Errorf("a vacant region does not count as one: %v", err)
	}

	noErr(t, sys.PunchHole(fd, 0, size))
	if err := s.Occupy(id, fd); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "sparse") {
		t.Errorf("without its pages: %v", err)
	}
	noErr(t, sys.Allocate(fd, 0, size))
	noErr(t, s.Occupy(id, fd))
	if b, ok := s.Resolve(id, 0, size-64); !ok || len(b) != size-64 || s.Used() != size || pool.Bytes() != size {
		t.Errorf("%d bytes resolve, %d are accounted for", len(b), pool.Bytes())
	}
	noErr(t, s.Occupy(id, fd))
	if err := s.Occupy(id, memfd(t, size, good)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "other memory") || pool.Bytes() != size {
		t.Errorf("with other memory: %v, %d bytes are accounted for", err, pool.Bytes())
	}
	noErr(t, s.Vacate(id))
	noErr(t, s.Remove(id))
	if len(s.Regions()) != 0 || pool.Bytes() != 0 {
		t.Errorf("%v and %d bytes are left", s.Regions(), pool.Bytes())
	}
	for _, err := range []error{s.Vacate(id), s.Occupy(id, fd)} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("of a region that is gone: %v", err)
		}
	}
}

// TestOccupyAsksForTheQuota: what others took meanwhile is not there any more.
func TestOccupyAsksForTheQuota(t *testing.T) {
	pool := NewPool(Limits{TotalBytes: 8192})
	sleeper, other := NewSpace(pool, ""), NewSpace(pool, "")
	defer sleeper.Close()
	defer other.Close()
	fd := memfd(t, 8192, good)
	id, err := sleeper.Register(fd, 8192)
	noErr(t, err)
	noErr(t, sleeper.Vacate(id))
	taken, err := other.Register(fd, 4096)
	noErr(t, err)
	if err := sleeper.Occupy(id, fd); !errors.Is(err, ErrQuota) {
		t.Errorf("more than all may: %v", err)
	}
	noErr(t, other.Remove(taken))
	noErr(t, sleeper.Occupy(id, fd))
}

// TestRegisterVacant: a session that comes back without its memory names its regions all the same.
func TestRegisterVacant(t *testing.T) {
	s := NewSpace(NewPool(Limits{Regions: 2}), "")
	fd := memfd(t, 8192, good)
	id, err := s.RegisterVacant(64, 4096)
	noErr(t, err)
	if n, there := s.Size(id); n != 4096 || !there || s.Used() != 0 {
		t.Errorf("%d bytes, there: %v, %d used", n, there, s.Used())
	}
	kept, err := s.Retain(func(mark func(layout.RegionID, uint64, uint64)) { mark(id, 0, 4096) })
	if err != nil || kept != 0 {
		t.Errorf("%d bytes of a vacant region stay: %v", kept, err)
	}
	noErr(t, s.Occupy(id, fd))
	if _, ok := s.Resolve(id, 4095, 1); !ok {
		t.Error("its memory does not resolve")
	}
	for _, n := range []uint64{0, 1 << 63} {
		if _, err := s.RegisterVacant(0, n); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	_, err = s.RegisterVacant(0, 1)
	noErr(t, err)
	if _, err := s.RegisterVacant(0, 1); !errors.Is(err, ErrQuota) {
		t.Errorf("a third region: %v", err)
	}
	s.Close()
	if _, err := s.RegisterVacant(0, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// TestVacantWithinNoBytes: what has no memory is registered even where a limit on bytes was lowered to less than others keep.
func TestVacantWithinNoBytes(t *testing.T) {
	pool := NewPool(Limits{TotalBytes: 8192})
	s, other := NewSpace(pool, ""), NewSpace(pool, "")
	defer s.Close()
	defer other.Close()
	_, err := other.Register(memfd(t, 8192, good), 8192)
	noErr(t, err)
	pool.SetLimits(Limits{TotalBytes: 4096})
	if _, err := s.RegisterVacant(0, 4096); err != nil {
		t.Error(err)
	}
}
