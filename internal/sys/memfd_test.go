package sys

import (
	"errors"
	"syscall"
	"testing"
)

func TestMemfdSeals(t *testing.T) {
	fd := memfd(t, 8192, MemfdOptions{Prefault: true, Seals: SealSize | SealSeal})
	seals, err := GetSeals(fd)
	noErr(t, err)
	if !seals.Has(SealShrink | SealGrow | SealSeal) {
		t.Fatalf("seals %v", seals)
	}
	for _, size := range []int64{4096, 16384} {
		if err := Truncate(fd, size); !errors.Is(err, syscall.EPERM) {
			t.Errorf("resize of a sealed memfd to %d: %v, want EPERM", size, err)
		}
	}
	if err := AddSeals(fd, SealWrite); !errors.Is(err, syscall.EPERM) {
		t.Errorf("adding a seal after SealSeal: %v, want EPERM", err)
	}
}

// A ring that one side writes is sealed after its writer mapped it: nothing
// may get a writable mapping from then on, while the first stays writable.
func TestFutureWriteSeal(t *testing.T) {
	fd := memfd(t, 4096, MemfdOptions{})
	w, err := Mmap(fd, 4096, ProtWrite)
	noErr(t, err)
	defer func() { noErr(t, Munmap(w)) }()
	noErr(t, AddSeals(fd, SealFutureWrite|SealSize|SealSeal))
	if b, err := Mmap(fd, 4096, ProtWrite); !errors.Is(err, syscall.EPERM) {
		t.Fatalf("writable mapping after the seal: %v, %v, want EPERM", len(b), err)
	}
	r, err := Mmap(fd, 4096, ProtRead)
	noErr(t, err)
	defer func() { noErr(t, Munmap(r)) }()
	if err := Protect(r, ProtWrite); !errors.Is(err, syscall.EACCES) {
		t.Fatalf("making the read-only mapping writable: %v, want EACCES", err)
	}
	w[17] = 42
	if r[17] != 42 {
		t.Fatal("the old writable mapping does not write any more")
	}
}

func TestMemfdBadArguments(t *testing.T) {
	for _, c := range []struct {
		size int64
		opt  MemfdOptions
	}{
		{0, MemfdOptions{}},
		{-1, MemfdOptions{}},
		{3 << 20, MemfdOptions{HugePage: 2 << 20}},
		{6 << 20, MemfdOptions{HugePage: 3 << 20}},
		{1 << 20, MemfdOptions{HugePage: -4096}},
	} {
		if fd, err := MemfdCreate("bad", c.size, c.opt); err == nil {
			_ = Close(fd)
			t.Errorf("memfd of %d bytes with %+v was made", c.size, c.opt)
		}
	}
}

// Huge pages are there only when the machine's owner set some aside; a memfd
// of them can be made without, but not filled.
func TestHugeMemfd(t *testing.T) {
	const huge = 2 << 20
	fd, err := MemfdCreate("huge", huge, MemfdOptions{HugePage: huge, Prefault: true, Seals: SealSize})
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENODEV) {
		return // refused now instead of by SIGBUS later: what Prefault is for
	}
	noErr(t, err)
	defer func() { noErr(t, Close(fd)) }()
	info, err := Identify(fd)
	noErr(t, err)
	if info.Kind != KindHugeMemfd || info.PageSize != huge || info.Sparse() || !info.Seals.Has(SealSize) {
		t.Fatalf("%+v", info)
	}
}

func TestMapIsShared(t *testing.T) {
	fd := memfd(t, 1<<16, MemfdOptions{})
	a, err := Mmap(fd, 1<<16, ProtWrite)
	noErr(t, err)
	defer func() { noErr(t, Munmap(a)) }()
	b, err := Mmap(fd, 1<<16, ProtRead)
	noErr(t, err)
	defer func() { noErr(t, Munmap(b)) }()
	noErr(t, Populate(a, true))
	noErr(t, Populate(b, false))
	a[0xfffe] = 7
	if b[0xfffe] != 7 {
		t.Fatal("two mappings of one memfd differ")
	}
	if _, err := Mmap(fd, 0, ProtRead); err == nil {
		t.Error("a mapping of no bytes was made")
	}
}

func TestSealNames(t *testing.T) {
	for s, want := range map[Seals]string{
		0:                          "none",
		SealSize:                   "shrink|grow",
		SealFutureWrite | SealSeal: "seal|future_write",
		SealShrink | 1<<20:         "shrink|0x100000",
	} {
		if got := s.String(); got != want {
			t.Errorf("%#x: %q, want %q", int(s), got, want)
		}
	}
}

// TestPunch: pages that are given back are gone from the file for everybody, and the others stay.
func TestPunch(t *testing.T) {
	const page = 4096
	fd, err := MemfdCreate("punch", 4*page, MemfdOptions{Prefault: true, Seals: SealSize})
	noErr(t, err)
	defer Close(fd)
	mine, err := Mmap(fd, 4*page, ProtWrite)
	noErr(t, err)
	theirs, err := Mmap(fd, 4*page, ProtRead)
	noErr(t, err)
	for i := range mine {
		mine[i] = 7
	}
	noErr(t, Punch(mine[page:3*page]))
	info, err := Identify(fd)
	noErr(t, err)
	if info.Allocated != 2*page {
		t.Errorf("%d bytes are allocated, want %d", info.Allocated, 2*page)
	}
	for i, want := range []byte{7, 0, 0, 7} {
		if theirs[i*page] != want {
			t.Errorf("page %d has %d, want %d", i, theirs[i*page], want)
		}
	}
	noErr(t, Munmap(mine))
	noErr(t, Munmap(theirs))
}
