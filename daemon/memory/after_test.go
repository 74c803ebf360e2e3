package memory

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestRegisterAfter: a region that begins within a page is exactly its own bytes, and the pages that it shares with what
// lies around it stay while one of those bytes is wanted.
func TestRegisterAfter(t *testing.T) {
	const page, skip, size = 4096, 64, 3*4096 + 10
	pool := NewPool(Limits{})
	s := NewSpace(pool, "")
	fd := memfd(t, 4*page, good)
	mine, err := sys.Mmap(fd, 4*page, sys.ProtWrite)
	noErr(t, err)
	defer func() { noErr(t, sys.Munmap(mine)) }()
	for i := range mine {
		mine[i] = byte(i % 251)
	}
	id, err := s.RegisterAfter(fd, skip, size)
	noErr(t, err)
	all, ok := s.Resolve(id, 0, size)
	if !ok || all[0] != skip || all[size-1] != byte((skip+size-1)%251) || s.Used() != 4*page {
		t.Fatalf("the region is not the %d bytes after %d", size, skip)
	}
	if _, ok := s.Resolve(id, 0, size+1); ok {
		t.Error("a byte behind the region resolves")
	}
	kept, err := s.Retain(func(mark func(layout.RegionID, uint64, uint64)) {
		mark(id, page-skip, 1) // the first byte of the second page
		mark(id, size-1, 1)
	})
	noErr(t, err)
	if want := uint64(2 * page); kept != want || s.Used() != want || pool.Bytes() != want {
		t.Errorf("%d bytes kept, %d and %d are accounted for; %d are wanted", kept, s.Used(), pool.Bytes(), want)
	}
	if got := allocated(t, fd); got != 2*page {
		t.Errorf("%d bytes are allocated; must be %d", got, 2*page)
	}
	s.Close()
	if pool.Bytes() != 0 {
		t.Errorf("%d bytes are still accounted for", pool.Bytes())
	}
	_, err = NewSpace(pool, "").RegisterAfter(fd, skip, 4*page-skip+1)
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("a region that ends behind the memfd: %v", err)
	}
	_, err = NewSpace(pool, "").RegisterAfter(fd, 5*page, 1)
	if want := "bytes is 1, after the first 20480 the memfd has 0"; !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("a region that begins behind the memfd: %v, must say %q", err, want)
	}
}
