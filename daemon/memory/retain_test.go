package memory

import (
	"bytes"
	"errors"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/internal/sys"

	"pgregory.net/rapid"
)

// allocated is how many bytes of a memfd the system has given out.
func allocated(t testing.TB, fd int) int64 {
	t.Helper()
	info, err := sys.Identify(fd)
	noErr(t, err)
	return info.Allocated
}

// TestRetain is what happens to the memory of a process that died: the pages that somebody still wants stay as they are, a page that
// is wanted in part stays as a whole, and the rest is the system's again at once.
func TestRetain(t *testing.T) {
	const page = 4096
	pool := NewPool(Limits{})
	s := NewSpace(pool, "")
	wanted, unwanted := memfd(t, 16*page, good), memfd(t, 4*page, good)
	id, err := s.Register(wanted, 15*page+100)
	noErr(t, err)
	other, err := s.Register(unwanted, 4*page)
	noErr(t, err)
	all, _ := s.Resolve(id, 0, 15*page+100)
	for i := range all {
		all[i] = byte(i/page + 1)
	}

	kept, err := s.Retain(func(mark func(layout.RegionID, uint64, uint64)) {
		mark(id, 0, 1)
		mark(id, 3*page-1, 2) // a byte of the third page and one of the fourth
		mark(id, 15*page, 100)
		mark(id, 14*page, 0)            // nothing
		mark(id, 100*page, 8)           // outside
		mark(layout.RegionID(99), 0, 8) // nowhere
	})
	noErr(t, err)
	if want := uint64(4 * page); kept != want || s.Used() != want || pool.Bytes() != want {
		t.Errorf("%d bytes kept, %d and %d are accounted for; %d are wanted", kept, s.Used(), pool.Bytes(), want)
	}
	if a, b := allocated(t, wanted), allocated(t, unwanted); a != 4*page || b != 0 {
		t.Errorf("%d and %d bytes are allocated; must be %d and 0", a, b, 4*page)
	}
	if _, there := s.Size(other); there {
		t.Error("a region of which nothing is wanted is still there")
	}
	for _, i := range []int{0, 2, 3, 15} {
		if got, _ := s.Resolve(id, uint64(i*page), 100); !bytes.Equal(got, bytes.Repeat([]byte{byte(i + 1)}, 100)) {
			t.Errorf("page %d, which is wanted, has %d...", i, got[0])
		}
	}
	s.Close()
	if pool.Bytes() != 0 {
		t.Errorf("%d bytes are accounted for after the end", pool.Bytes())
	}
}

// TestPages compares the holes between wanted bytes with those found page by page.
func TestPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const page = 8
		n := rapid.IntRange(1, 200).Draw(t, "pages")
		p, want := newPageSet(n*page, page), make([]bool, n)
		for range rapid.IntRange(0, 10).Draw(t, "marks") {
			off, size := rapid.IntRange(0, n*page+20).Draw(t, "off"), rapid.IntRange(0, 60).Draw(t, "size")
			p.mark(uint64(off), uint64(size))
			for b := off; b < min(off+size, n*page); b++ {
				want[b/page] = true
			}
		}
		got, last := make([]bool, n), -1
		for i := range got {
			got[i] = true
		}
		p.holes(func(from, to int) {
			if from%page != 0 || to%page != 0 || from >= to || from <= last {
				t.Fatalf("hole from %d to %d after one that ended at %d", from, to, last)
			}
			last = to
			for i := from / page; i < to/page; i++ {
				got[i] = false
			}
		})
		for i := range want {
			if want[i] != got[i] {
				t.Fatalf("page %d: wanted %v, kept %v", i, want[i], got[i])
			}
		}
	})
}

// TestRetainShared: what is another session's too is not the dead one's to give back.
func TestRetainShared(t *testing.T) {
	const size = 4 * 4096
	pool := NewPool(Limits{})
	dead, alive := NewSpace(pool, ""), NewSpace(pool, "")
	fd := memfd(t, size, good)
	for _, s := range []*Space{dead, alive} {
		_, err := s.Register(fd, size)
		noErr(t, err)
	}
	if kept, err := dead.Retain(nothing); err != nil || kept != size || allocated(t, fd) != size {
		t.Errorf("%d bytes kept, %d allocated, %v", kept, allocated(t, fd), err)
	}
	dead.Close()
	if kept, err := alive.Retain(nothing); err != nil || kept != 0 || allocated(t, fd) != 0 || pool.Bytes() != 0 {
		t.Errorf("%d bytes kept by the last one, %d allocated, %v", kept, allocated(t, fd), err)
	}
	alive.Close()
}

// TestRetainBehindTheRegion: the mapping keeps all of a memfd, so all of it is accounted for. What lies behind the region is not the dead
// one's to give back: others may use it who never registered it.
func TestRetainBehindTheRegion(t *testing.T) {
	const page, size = 4096, 64 * 4096
	pool := NewPool(Limits{SessionBytes: size})
	s := NewSpace(pool, "")
	defer s.Close()
	fd := memfd(t, size, good)
	id, err := s.Register(fd, 3*page-1)
	noErr(t, err)
	if s.Used() != size || pool.Bytes() != size {
		t.Errorf("%d and %d bytes are accounted for, %d are kept", s.Used(), pool.Bytes(), size)
	}
	if _, err := s.Register(memfd(t, page, good), 1); !errors.Is(err, ErrQuota) {
		t.Errorf("more than a session may keep: %v", err)
	}
	kept, err := s.Retain(func(mark func(layout.RegionID, uint64, uint64)) {
		mark(id, 8, 1)
		mark(id, 3*page-1, page) // all outside of it
	})
	noErr(t, err)
	const want = size - 2*page
	if got := allocated(t, fd); kept != want || s.Used() != want || pool.Bytes() != want || got != want {
		t.Errorf("%d bytes kept, %d and %d are accounted for, %d allocated; must be %d", kept, s.Used(), pool.Bytes(), got, want)
	}
}

// TestRetainBeforeTheRegion: nor are the pages before the one in which the region begins. That one counts as the region's.
func TestRetainBeforeTheRegion(t *testing.T) {
	const page, size, skip = 4096, 8 * 4096, 3*4096 + 64
	for _, last := range []bool{true, false} { // whether the region's last page is wanted; else the region is removed
		pool := NewPool(Limits{})
		s := NewSpace(pool, "")
		fd := memfd(t, size, good)
		id, err := s.RegisterAfter(fd, skip, size-skip)
		noErr(t, err)
		kept, err := s.Retain(func(mark func(layout.RegionID, uint64, uint64)) {
			if last {
				mark(id, size-skip-1, 1)
			}
		})
		noErr(t, err)
		want, accounted := int64(3*page), uint64(0)
		if last {
			want, accounted = 4*page, 4*page
		}
		if got := allocated(t, fd); got != want || kept != accounted || s.Used() != accounted || pool.Bytes() != accounted {
			t.Errorf("last page wanted %v: %d bytes allocated, %d kept, %d and %d are accounted for; must be %d and %d", last, got, kept, s.Used(), pool.Bytes(), want, accounted)
		}
		s.Close()
	}
}

// TestRetainNothing: what is unmapped keeps nothing, whatever is behind it.
func TestRetainNothing(t *testing.T) {
	const page, size = 4096, 64 * 4096
	pool := NewPool(Limits{})
	s := NewSpace(pool, "")
	defer s.Close()
	fd := memfd(t, size, good)
	_, err := s.Register(fd, page)
	noErr(t, err)
	kept, err := s.Retain(func(func(layout.RegionID, uint64, uint64)) {})
	if got := allocated(t, fd); err != nil || kept != 0 || pool.Bytes() != 0 || got != size-page {
		t.Errorf("%d bytes kept, %d accounted for, %d allocated, %v; must be 0, 0 and %d", kept, pool.Bytes(), got, err, size-page)
	}
}

// TestRetainHugePage: a byte counts as its memfd's whole pages.
func TestRetainHugePage(t *testing.T) {
	const page = 2 << 20
	fd, err := sys.MemfdCreate("memory-test", 2*page, sys.MemfdOptions{HugePage: page, Prefault: true, Seals: sys.SealSize})
	if err != nil {
		t.Skipf("no huge pages: %v", err)
	}
	defer sys.Close(fd)
	s := NewSpace(NewPool(Limits{}), "")
	defer s.Close()
	id, err := s.Register(fd, 1)
	noErr(t, err)
	if s.Used() != 2*page {
		t.Errorf("%d bytes are accounted for, %d are kept", s.Used(), 2*page)
	}
	kept, err := s.Retain(func(mark func(layout.RegionID, uint64, uint64)) { mark(id, 0, 1) })
	if err != nil || kept != 2*page || s.Used() != 2*page || allocated(t, fd) != 2*page {
		t.Errorf("%d bytes kept, %d accounted for, %d allocated, %v", kept, s.Used(), allocated(t, fd), err)
	}
}

// TestRetainWhatTheClientSealed: a client can seal a memfd so that its pages cannot be given back. Where some are wanted, all stay then. A region
// of which nothing is wanted is removed all the same.
func TestRetainWhatTheClientSealed(t *testing.T) {
	const page, size = 4096, 4 * 4096
	pool := NewPool(Limits{})
	s := NewSpace(pool, "")
	defer s.Close()
	wanted, unwanted := memfd(t, size, good), memfd(t, size, good)
	id, err := s.Register(wanted, size)
	noErr(t, err)
	other, err := s.Register(unwanted, size)
	noErr(t, err)
	noErr(t, sys.AddSeals(wanted, sys.SealFutureWrite))
	noErr(t, sys.AddSeals(unwanted, sys.SealFutureWrite))
	kept, err := s.Retain(func(mark func(layout.RegionID, uint64, uint64)) { mark(id, 0, page) })
	if err == nil || kept != size || s.Used() != size || pool.Bytes() != size {
		t.Errorf("%d bytes kept, %d and %d are accounted for, want %d: %v", kept, s.Used(), pool.Bytes(), size, err)
	}
	if _, there := s.Size(other); there {
		t.Error("a region of which nothing is wanted is still there")
	}
}

// TestRetainAfterARemoval: a region that is gone already is no obstacle.
func TestRetainAfterARemoval(t *testing.T) {
	const size = 4096
	s := NewSpace(NewPool(Limits{}), "")
	defer s.Close()
	gone, err := s.Register(memfd(t, size, good), size)
	noErr(t, err)
	id, err := s.Register(memfd(t, size, good), size)
	noErr(t, err)
	noErr(t, s.Remove(gone))
	kept, err := s.Retain(func(mark func(layout.RegionID, uint64, uint64)) {
		mark(gone, 0, 1)
		mark(id, 0, 1)
	})
	if err != nil || kept != size {
		t.Errorf("%d bytes kept, want %d: %v", kept, size, err)
	}
}

// TestRetainEndsWarming: pages that are given back do not come back, so nobody fills page tables by then.
func TestRetainEndsWarming(t *testing.T) {
	const size = 4096
	pool := NewPool(Limits{})
	s := NewSpace(pool, "")
	defer s.Close()
	id, err := s.Register(memfd(t, size, good), size)
	noErr(t, err)
	r := s.find(id)
	r.warm.end()
	slow := &warmer{stop: make(chan struct{}), done: make(chan struct{})}
	go func() { <-slow.stop; close(slow.done) }()
	r.warm = slow
	pool.punch = func(b []byte) error {
		select {
		case <-slow.done:
		default:
			t.Error("pages are given back while the region is warmed")
		}
		return sys.Punch(b)
	}
	_, err = s.Retain(nothing)
	noErr(t, err)
}
