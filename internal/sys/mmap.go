package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Prot is what a mapping may be used for.
type Prot int

// The protections of Mmap and Protect.
const (
	ProtNone  Prot = unix.PROT_NONE
	ProtRead  Prot = unix.PROT_READ
	ProtWrite Prot = unix.PROT_READ | unix.PROT_WRITE
)

// Mmap maps size bytes of fd from offset 0, shared. The mapping is left out of
// core dumps and of forked children. Keep the returned slice itself: Munmap
// knows the mapping by it. The descriptor may be closed afterwards.
//
// Another process may truncate the file unless it is sealed, and any access
// then raises SIGBUS: see internal/blockcopy for reading and writing memory of
// others.
func Mmap(fd int, size int, prot Prot) ([]byte, error) {
	return mmap(fd, size, prot, unix.MAP_SHARED)
}

// MmapAnon maps size bytes of private zeroed memory outside the Go heap.
func MmapAnon(size int, prot Prot) ([]byte, error) {
	return mmap(-1, size, prot, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

func mmap(fd, size int, prot Prot, flags int) ([]byte, error) {
	if size <= 0 {
		return nil, fmt.Errorf("map fd %d: size %d: must be positive", fd, size)
	}
	b, err := unix.Mmap(fd, 0, size, int(prot), flags)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of fd %d: %w", size, fd, err)
	}
	for _, advice := range []int{unix.MADV_DONTDUMP, unix.MADV_DONTFORK} {
		if err := unix.Madvise(b, advice); err != nil {
			_ = unix.Munmap(b)
			return nil, fmt.Errorf("advise %d on %d bytes of fd %d: %w", advice, size, fd, err)
		}
	}
	return b, nil
}

// Munmap ends a mapping of Mmap or MmapAnon; b must be the slice they
// returned. Nobody may touch the memory during the call or after it.
func Munmap(b []byte) error {
	if err := unix.Munmap(b); err != nil {
		return fmt.Errorf("unmap %d bytes: %w", len(b), err)
	}
	return nil
}

// Punch gives the pages that b covers, part of a shared writable mapping of
// Mmap, back to the system, for everybody who maps the file. They then read as
// zeros, and come back when they are touched. b must be whole pages of the
// file, which may be huge ones.
func Punch(b []byte) error {
	if err := unix.Madvise(b, unix.MADV_REMOVE); err != nil {
		return fmt.Errorf("punch %d bytes: %w", len(b), err)
	}
	return nil
}

// Unload makes the page tables forget b, part of a shared mapping of Mmap. The
// pages keep what is in them. Of huge pages, parts are not forgotten, and
// before Linux 5.18 none are. They need not be: they have few entries.
func Unload(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTNEED) }

// Protect changes the protection of the pages that b covers; b must begin on
// a page.
func Protect(b []byte, prot Prot) error {
	if err := unix.Mprotect(b, int(prot)); err != nil {
		return fmt.Errorf("protect %d bytes: %w", len(b), err)
	}
	return nil
}

// Populate fills the page tables of b, so that the first copy pays no page
// faults, and allocates missing pages when write is true. It needs Linux 5.14;
// before that it fails with EINVAL, which only costs speed.
func Populate(b []byte, write bool) error {
	advice := unix.MADV_POPULATE_READ
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	for {
		err := unix.Madvise(b, advice)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil {
			return fmt.Errorf("populate %d bytes: %w", len(b), err)
		}
		return nil
	}
}
