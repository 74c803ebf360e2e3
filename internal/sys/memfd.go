package sys

import (
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

// MemfdOptions says how MemfdCreate makes a memfd. The zero value gives base
// pages, unsealed (but sealable), with no page allocated yet.
type MemfdOptions struct {
	// HugePage asks for pages of this many bytes from the huge page pool
	// (2 MiB, 1 GiB); 0 means base pages. The size must be a multiple of it.
	HugePage int64
	// Prefault allocates every page now, so that a lack of memory is an
	// error here and not a SIGBUS later.
	Prefault bool
	// Seals are added once the file has its size.
	Seals Seals
}

// MemfdCreate makes a memfd of size bytes, all zero. name shows in
// /proc/PID/maps as "/memfd:name" and means nothing else. The caller owns the
// descriptor.
func MemfdCreate(name string, size int64, opt MemfdOptions) (int, error) {
	if size <= 0 {
		return -1, fmt.Errorf("memfd %q: size %d: must be positive", name, size)
	}
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if hp := opt.HugePage; hp != 0 {
		if hp < 0 || bits.OnesCount64(uint64(hp)) != 1 {
			return -1, fmt.Errorf("memfd %q: huge page size %d: must be a power of two", name, hp)
		}
		if size%hp != 0 {
			return -1, fmt.Errorf("memfd %q: size %d: must be a multiple of the huge page size %d", name, size, hp)
		}
		flags |= unix.MFD_HUGETLB | bits.TrailingZeros64(uint64(hp))<<unix.MFD_HUGE_SHIFT
	}
	fd, err := memfdCreate(name, flags)
	if err != nil {
		return -1, fmt.Errorf("memfd %q: create: %w", name, err)
	}
	if err := fillMemfd(fd, size, opt); err != nil {
		_ = Close(fd)
		return -1, fmt.Errorf("memfd %q: %w", name, err)
	}
	return fd, nil
}

// memfdCreate asks for a memfd that can never be executed. Kernels before 6.3
// do not know that flag, and are asked without it.
func memfdCreate(name string, flags int) (int, error) {
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate(name, flags)
	}
	return fd, forbidden("memfd_create", err)
}

func fillMemfd(fd int, size int64, opt MemfdOptions) error {
	if err := Truncate(fd, size); err != nil {
		return err
	}
	if opt.Prefault {
		if err := Allocate(fd, 0, size); err != nil {
			return err
		}
	}
	if opt.Seals != 0 {
		return AddSeals(fd, opt.Seals)
	}
	return nil
}

// Truncate sets the size of the file fd to size bytes.
func Truncate(fd int, size int64) error {
	if err := unix.Ftruncate(fd, size); err != nil {
		return fmt.Errorf("set size of fd %d to %d: %w", fd, size, err)
	}
	return nil
}

// Allocate gives the bytes [off, off+size) of the file fd their pages, without
// changing what they hold.
func Allocate(fd int, off, size int64) error {
	for {
		err := unix.Fallocate(fd, 0, off, size)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("allocate %d bytes at %d of fd %d: %w", size, off, fd, err)
		}
		return nil
	}
}

// PunchHole gives the pages of [off, off+size) back to the system; the bytes
// then read as zero. Only whole pages go back: at the edges, bytes are zeroed
// instead.
func PunchHole(fd int, off, size int64) error {
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(fd, mode, off, size); err != nil {
		return fmt.Errorf("punch a hole of %d bytes at %d of fd %d: %w", size, off, fd, err)
	}
	return nil
}
