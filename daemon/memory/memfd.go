package memory

import (
	"fmt"
	"math"
	"os"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// mapMemfd judges a descriptor from a client and maps its first skip+n bytes, in whole pages of the size it
// returns, with the file's identity. The descriptor stays the caller's.
func mapMemfd(fd int, skip uint32, n uint64) (whole []byte, page int, file file, err error) {
	info, err := sys.Identify(fd)
	if err != nil {
		return nil, 0, file, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	file.dev, file.ino = info.Dev, info.Ino
	if err := judge(info, skip, n); err != nil {
		return nil, 0, file, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	unit := uint64(max(info.PageSize, int64(os.Getpagesize()))) // huge pages are mapped whole
	size := (uint64(skip) + n + unit - 1) / unit * unit         // no more than Size, so this cannot overflow
	whole, err = sys.Mmap(fd, int(size), sys.ProtWrite)
	if err != nil {
		return nil, 0, file, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return whole, int(unit), file, nil
}

// judge says why the n bytes after the first skip ones of what info describes must not be mapped.
func judge(info sys.FileInfo, skip uint32, n uint64) error {
	switch {
	case !info.IsMemfd():
		return fmt.Errorf("the descriptor is a %v: it must be a memfd made with MFD_ALLOW_SEALING", info.Kind)
	case n == 0:
		return fmt.Errorf("bytes is 0: must be at least 1")
	case n > math.MaxInt64-math.MaxUint32 || int64(n)+int64(skip) > info.Size:
		if skip != 0 {
			return fmt.Errorf("bytes is %d, after the first %d the memfd has %d", n, skip, info.Size-int64(skip))
		}
		return fmt.Errorf("bytes is %d, the memfd has %d", n, info.Size)
	case !info.Seals.Has(sys.SealShrink):
		return fmt.Errorf("the memfd has seals %v: it must be sealed against shrinking (F_SEAL_SHRINK)", info.Seals)
	case info.Seals&(sys.SealWrite|sys.SealFutureWrite) != 0 || !info.Writable:
		return fmt.Errorf("the memfd cannot be mapped for writing (seals %v, opened for writing: %t)", info.Seals, info.Writable)
	case info.Sparse():
		return fmt.Errorf("the memfd is sparse: %d of %d bytes are allocated: allocate all of it with fallocate", info.Allocated, info.Size)
	}
	return nil
}

// file is what several descriptors, and regions, may have in common.
type file struct{ dev, ino uint64 }
