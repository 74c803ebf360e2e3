package memory

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// TestMapped: the regions of all sessions that are mapped are bounded together, those of which only a dead engine's offers need something too.
// Vacant ones are not mapped.
func TestMapped(t *testing.T) {
	const page = 4096
	pool := NewPool(Limits{Mapped: 2})
	a, b := NewSpace(pool), NewSpace(pool)
	defer a.Close()
	defer b.Close()
	fd := memfd(t, page, good)
	first, err := a.Register(fd, page)
	noErr(t, err)
	_, err = a.Register(memfd(t, page, good), page)
	noErr(t, err)
	full := func(s *Space) {
		t.Helper()
		if _, err := s.Register(memfd(t, page, good), page); !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), "2 regions of all sessions are mapped") ||
			!strings.Contains(err.Error(), "vm.max_map_count") {
			t.Errorf("a third region: %v", err)
		}
	}
	full(b)
	_, err = b.RegisterVacant(0, page)
	noErr(t, err)

	noErr(t, a.Vacate(first))
	other, err := b.Register(memfd(t, page, good), page)
	noErr(t, err)
	if err := a.Occupy(first, fd); !errors.Is(err, ErrQuota) {
		t.Errorf("a region that was vacant, where others are mapped: %v", err)
	}
	_, err = b.Retain(func(mark func(layout.RegionID, uint64, uint64)) { mark(other, 0, 1) })
	noErr(t, err)
	full(a)
	noErr(t, b.Remove(other))
	noErr(t, a.Occupy(first, fd))
}
