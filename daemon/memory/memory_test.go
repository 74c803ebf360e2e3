package memory

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/internal/leak"
	"github.com/kvpipe/kvpipe/internal/sys"

	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { leak.Main(m) }

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func memfd(t testing.TB, size int64, opt sys.MemfdOptions) int {
	t.Helper()
	fd, err := sys.MemfdCreate("memory-test", size, opt)
	noErr(t, err)
	t.Cleanup(func() { _ = sys.Close(fd) })
	return fd
}

var good = sys.MemfdOptions{Prefault: true, Seals: sys.SealSize}

// TestWhatIsRefused is what a stranger may pass instead of memory.
func TestWhatIsRefused(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "f")
	noErr(t, err)
	defer file.Close()
	noErr(t, file.Truncate(4096))
	r, w, err := os.Pipe()
	noErr(t, err)
	defer r.Close()
	defer w.Close()
	event, err := sys.EventfdCreate(false)
	noErr(t, err)
	defer sys.Close(event)
	punched := memfd(t, 4*4096, good)
	noErr(t, sys.PunchHole(punched, 4096, 4096))
	readOnly, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", memfd(t, 4096, good)))
	noErr(t, err)
	defer readOnly.Close()

	for _, c := range []struct {
		name  string
		fd    int
		bytes uint64
		says  string
	}{
		{"file", int(file.Fd()), 4096, "ordinary file"},
		{"pipe", int(r.Fd()), 4096, "pipe"},
		{"eventfd", event, 4096, "eventfd"},
		{"nothing", -1, 4096, "bad file descriptor"},
		{"unsealed", memfd(t, 4096, sys.MemfdOptions{Prefault: true}), 4096, "F_SEAL_SHRINK"},
		{"growth sealed only", memfd(t, 4096, sys.MemfdOptions{Prefault: true, Seals: sys.SealGrow}), 4096, "F_SEAL_SHRINK"},
		{"sparse", memfd(t, 8192, sys.MemfdOptions{Seals: sys.SealSize}), 8192, "0 of 8192 bytes are allocated"},
		{"sparse, as long as files can be", memfd(t, math.MaxInt64, sys.MemfdOptions{Seals: sys.SealSize}), 4096, "the memfd is sparse: 0 of 9223372036854775807 bytes"},
		{"punched", punched, 4096, "12288 of 16384 bytes are allocated"},
		{"write sealed", memfd(t, 4096, sys.MemfdOptions{Prefault: true, Seals: sys.SealSize | sys.SealWrite}), 4096, "mapped for writing"},
		{"future write sealed", memfd(t, 4096, sys.MemfdOptions{Prefault: true, Seals: sys.SealSize | sys.SealFutureWrite}), 4096, "mapped for writing"},
		{"opened for reading", int(readOnly.Fd()), 4096, "cannot be mapped for writing (seals"},
		{"no bytes", memfd(t, 4096, good), 0, "bytes is 0"},
		{"too many bytes", memfd(t, 4096, good), 4097, "bytes is 4097, the memfd has 4096"},
		{"far too many bytes", memfd(t, 4096, good), math.MaxUint64, "the memfd has 4096"},
	} {
		pool := NewPool(Limits{})
		s := NewSpace(pool, "")
		id, err := s.Register(c.fd, c.bytes)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: region %d, %v; must say %q", c.name, id, err, c.says)
		}
		if pool.Bytes() != 0 || len(s.Regions()) != 0 {
			t.Errorf("%s: %d bytes and %v are left", c.name, pool.Bytes(), s.Regions())
		}
		s.Close()
	}
}

func TestQuota(t *testing.T) {
	const page = 4096
	pool := NewPool(Limits{SessionBytes: 4 * page, TotalBytes: 6 * page, Regions: 2})
	a, b := NewSpace(pool, ""), NewSpace(pool, "")
	defer a.Close()
	defer b.Close()
	of := func(n int64) int { return memfd(t, n*page-1, good) } // a page that is begun counts
	if _, err := a.Register(of(5), 1); !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), "1 bytes, in a memfd of 20480") || !strings.Contains(err.Error(), "session_pinned = 16384") {
		t.Errorf("more than a session may: %v", err)
	}
	first, err := a.Register(of(3), 1)
	noErr(t, err)
	if _, err := a.Register(of(2), 1); !errors.Is(err, ErrQuota) {
		t.Errorf("more than a session may, in two: %v", err)
	}
	if _, err := b.Register(of(4), 1); !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), "total_pinned = 24576") {
		t.Errorf("more than all may: %v", err)
	}
	_, err = a.Register(of(1), 1)
	noErr(t, err)
	if _, err := a.Register(of(1), 1); !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), "limit is 2") {
		t.Errorf("a third region: %v", err)
	}
	noErr(t, a.Remove(first))
	_, err = b.Register(of(4), 1)
	noErr(t, err)
	_, err = a.Register(of(1), 1) // neither the bytes nor the region that are gone count against the session
	noErr(t, err)
	if pool.Bytes() != 6*page || a.Used() != 2*page {
		t.Errorf("%d bytes are accounted for, %d of them to the first session; want %d and %d", pool.Bytes(), a.Used(), 6*page, 2*page)
	}
}

// TestGenerations: the name of a region that is gone never names another.
func TestGenerations(t *testing.T) {
	s := NewSpace(NewPool(Limits{}), "")
	fd := memfd(t, 4096, good)
	seen := map[layout.RegionID]bool{}
	for range 5 {
		id, err := s.Register(fd, 4096)
		noErr(t, err)
		if seen[id] || uint32(id) != 0 {
			t.Fatalf("region %#x: index 0 is free, and the name must be new", uint64(id))
		}
		seen[id] = true
		noErr(t, s.Remove(id))
		if err := s.Remove(id); !errors.Is(err, ErrNotFound) {
			t.Fatalf("removed twice: %v", err)
		}
		if _, ok := s.Resolve(id, 0, 1); ok {
			t.Fatal("a region that is gone resolves")
		}
	}
	s.Close()
	if _, err := s.Register(fd, 4096); !errors.Is(err, ErrClosed) {
		t.Errorf("registered after Close: %v", err)
	}
	s.Close()
}

// TestResolve compares with arithmetic that cannot overflow.
func TestResolve(t *testing.T) {
	s := NewSpace(NewPool(Limits{}), "")
	defer s.Close()
	const size = 5000 // not whole pages: what lies behind is not the client's to name
	id, err := s.Register(memfd(t, 8192, good), size)
	noErr(t, err)
	if n, ok := s.Size(id); n != size || !ok {
		t.Fatalf("size %d %v", n, ok)
	}
	edge := rapid.SampledFrom([]uint64{0, 1, size - 1, size, size + 1, 8192, math.MaxUint64 - size, math.MaxUint64 - 1, math.MaxUint64})
	number := rapid.OneOf(edge, rapid.Uint64Range(0, size), rapid.Uint64())
	rapid.Check(t, func(r *rapid.T) {
		off, n := number.Draw(r, "off"), number.Draw(r, "n")
		b, ok := s.Resolve(id, off, n)
		want := off <= size && n <= size && off+n <= size
		if ok != want || ok && (uint64(len(b)) != n || uint64(cap(b)) != n) {
			r.Fatalf("%d bytes at %d: %v, %d of %d", n, off, ok, len(b), cap(b))
		}
		if _, ok := s.Resolve(id^layout.RegionID(1<<rapid.IntRange(0, 63).Draw(r, "bit")), off, n); ok {
			r.Fatal("another region resolves")
		}
	})
}

// TestTruncationIsRefused: the seal that is asked for is what keeps the daemon alive.
func TestTruncationIsRefused(t *testing.T) {
	s := NewSpace(NewPool(Limits{}), "")
	defer s.Close()
	fd := memfd(t, 4096, good)
	_, err := s.Register(fd, 4096)
	noErr(t, err)
	if err := sys.Truncate(fd, 0); err == nil {
		t.Error("a registered memfd can be truncated")
	}
}

// TestConcurrentUse resolves while regions come and go; the race detector and the leak gate look on.
func TestConcurrentUse(t *testing.T) {
	pool := NewPool(Limits{})
	s := NewSpace(pool, "")
	fd := memfd(t, 4096, good)
	stop, done := make(chan struct{}), make(chan struct{})
	var last layout.RegionID
	ids := make(chan layout.RegionID, 1)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case last = <-ids:
			default:
			}
			if b, ok := s.Resolve(last, 0, 4096); ok && len(b) != 4096 {
				t.Errorf("%d bytes", len(b))
			}
		}
	}()
	for range 300 {
		id, err := s.Register(fd, 4096)
		noErr(t, err)
		select {
		case ids <- id:
		default:
		}
		noErr(t, s.Remove(id))
	}
	close(stop)
	<-done
	s.Close()
	if pool.Bytes() != 0 || len(pool.files) != 0 {
		t.Errorf("%d bytes are left, %d files are remembered", pool.Bytes(), len(pool.files))
	}
}

// TestWarming: a new region's pages become part of the daemon's tables without being touched, its removal does not wait for all of it, and
// takes them out first.
func TestWarming(t *testing.T) {
	const size = 3*warmStep + 4096
	s := NewSpace(NewPool(Limits{}), "")
	defer s.Close()
	fd := memfd(t, size, good)
	id, err := s.Register(fd, size)
	noErr(t, err)
	r := s.find(id)
	<-r.warm.done
	if err := sys.Populate(r.whole[:4096], false); err != nil {
		t.Skipf("this kernel cannot fill page tables in advance: %v", err)
	}
	if got := resident(t, r.whole); got != size/1024 {
		t.Errorf("%d KiB are mapped, want %d", got, size/1024)
	}
	r.unload()
	if got := resident(t, r.whole); got != 0 {
		t.Errorf("%d KiB are mapped just before it is unmapped", got)
	}
	for range 20 {
		id, err := s.Register(fd, size)
		noErr(t, err)
		noErr(t, s.Remove(id))
	}
}

// resident returns how many KiB of the mapping that begins with b have a page in this process's tables.
func resident(t *testing.T, b []byte) (kib int) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	noErr(t, err)
	_, rest, ok := strings.Cut(string(smaps), fmt.Sprintf("\n%x-", address(b)))
	if !ok {
		t.Fatal("the mapping is not in smaps")
	}
	_, rest, _ = strings.Cut(rest, "\nRss:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}
