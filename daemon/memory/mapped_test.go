package memory

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// TestMapped: the regions of all sessions that are mapped are bounded together, those of which only a dead engine's offers need something too.
// Vacant ones are not mapped.
func TestMapped(t *testing.T) {
	const page = 4096
	pool := NewPool(Limits{Mapped: 2})
	a, b, c := NewSpace(pool, "a"), NewSpace(pool, "b"), NewSpace(pool, "c")
	defer a.Close()
	defer b.Close()
	defer c.Close()
	fd := memfd(t, page, good)
	first, err := a.Register(fd, page)
	noErr(t, err)
	_, err = b.Register(memfd(t, page, good), page)
	noErr(t, err)
	full := func(s *Space) {
		t.Helper()
		if _, err := s.Register(memfd(t, page, good), page); !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), "2 regions of all sessions are mapped") ||
			!strings.Contains(err.Error(), "vm.max_map_count") {
			t.Errorf("a third region: %v", err)
		}
	}
	full(c)
	_, err = c.RegisterVacant(0, page)
	noErr(t, err)

	noErr(t, a.Vacate(first))
	other, err := c.Register(memfd(t, page, good), page)
	noErr(t, err)
	if err := a.Occupy(first, fd); !errors.Is(err, ErrQuota) {
		t.Errorf("a region that was vacant, where others are mapped: %v", err)
	}
	_, err = c.Retain(func(mark func(layout.RegionID, uint64, uint64)) { mark(other, 0, 1) })
	noErr(t, err)
	full(a)
	noErr(t, c.Remove(other))
	noErr(t, a.Occupy(first, fd))
}

// TestMappedOfOneOwner: the sessions of one owner may have half of them together, so that another always finds room.
func TestMappedOfOneOwner(t *testing.T) {
	const page = 4096
	pool := NewPool(Limits{Mapped: 4})
	one, two, other := NewSpace(pool, "greedy"), NewSpace(pool, "greedy"), NewSpace(pool, "other")
	first, err := one.Register(memfd(t, page, good), page)
	noErr(t, err)
	_, err = two.Register(memfd(t, page, good), page)
	noErr(t, err)
	if _, err := two.Register(memfd(t, page, good), page); !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), "the limit is 2, half of the 4") ||
		!strings.Contains(err.Error(), "vm.max_map_count") {
		t.Errorf("a third region of one owner: %v", err)
	}
	_, err = two.RegisterVacant(0, page)
	noErr(t, err)
	for range 2 {
		_, err = other.Register(memfd(t, page, good), page)
		noErr(t, err)
	}
	noErr(t, one.Vacate(first))
	_, err = two.Register(memfd(t, page, good), page)
	noErr(t, err)
	for _, s := range []*Space{one, two, other} {
		s.Close()
	}
	if len(pool.owned.owners) != 0 {
		t.Errorf("regions are left: %v", pool.owned)
	}
}

// TestMappedOfOneUser: a user that is many owners, as it can make cgroups, leaves others a quarter.
func TestMappedOfOneUser(t *testing.T) {
	const page = 4096
	pool := NewPool(Limits{Mapped: 8})
	var all []*Space
	register := func(owner string) error {
		s := NewSpace(pool, owner)
		all = append(all, s)
		_, err := s.Register(memfd(t, page, good), page)
		return err
	}
	for range 2 { // what is unmapped does not count
		for i := range 6 {
			noErr(t, register(fmt.Sprintf("uid 7, cgroup /%d", i)))
		}
		for _, owner := range []string{"uid 7, cgroup /0", "uid 7, cgroup /6, 7", "uid 7, not visible"} {
			if err := register(owner); !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), "6 regions of this user in all its cgroups are mapped, the limit is 6, three quarters of the 8") {
				t.Errorf("a seventh region of one user: %v", err)
			}
		}
		for range 2 {
			noErr(t, register("uid 77, cgroup /0"))
		}
		for _, s := range all {
			s.Close()
		}
		if len(pool.owned.owners) != 0 || len(pool.owned.users) != 0 {
			t.Errorf("regions are left: %v", pool.owned)
		}
	}
}

// TestMappedFromTheFirstMoment: a region counts from when it was found to be within the limits, so those that come at the same time do not all
// find room for one.
func TestMappedFromTheFirstMoment(t *testing.T) {
	pool := NewPool(Limits{Mapped: 2})
	noErr(t, pool.reserve("a", 1, 4096, 0, 0))
	if err := pool.reserve("a", 1, 4096, 0, 0); !errors.Is(err, ErrQuota) {
		t.Errorf("more than half of them by one owner: %v", err)
	}
	noErr(t, pool.reserve("b", 1, 4096, 0, 0))
	if err := pool.reserve("c", 1, 4096, 0, 0); !errors.Is(err, ErrQuota) {
		t.Errorf("more than all: %v", err)
	}
}
