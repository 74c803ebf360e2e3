package memory

import (
	"fmt"
	"math"
	"os"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// found is the file behind a client's descriptor.
type found struct {
	fd   int
	file file
	page uint64 // size of its pages
	size uint64 // of the file, rounded up to whole pages
}

// look judges a descriptor, of whose file a client registers n bytes after the first skip. The caller keeps the
// descriptor.
func look(fd int, skip uint32, n uint64) (found, error) {
	info, err := sys.Identify(fd)
	if err != nil {
		return found{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := judge(info, skip, n); err != nil {
		return found{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	page := uint64(max(info.PageSize, int64(os.Getpagesize()))) // huge pages are mapped whole
	return found{fd: fd, file: file{info.Dev, info.Ino}, page: page, size: wholePages(uint64(info.Size), page)}, nil
}

// wholePages rounds n up to whole pages. n is at most the size that a file can have.
func wholePages(n, page uint64) uint64 { return (n + page - 1) / page * page }

// mapWhole maps the whole file, not only the registered part: a mapping of any part keeps the whole file anyway. It
// judges the file once more, now that Pool.use has noted the region. Until then, a session that had ended could have
// been giving back pages of the file; now it does so no more.
func (m *found) mapWhole(of Region) ([]byte, error) {
	if _, err := look(m.fd, uint32(of.skip), of.size); err != nil {
		return nil, err
	}
	whole, err := sys.Mmap(m.fd, int(m.size), sys.ProtWrite)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return whole, nil
}

// judge says why the n bytes after the first skip must not be mapped; nil: they may.
func judge(info sys.FileInfo, skip uint32, n uint64) error {
	switch {
	case !info.IsMemfd():
		return fmt.Errorf("the descriptor is a %v: it must be a memfd made with MFD_ALLOW_SEALING", info.Kind)
	case n == 0:
		return fmt.Errorf("bytes is 0: must be at least 1")
	case n > math.MaxInt64-math.MaxUint32 || int64(n)+int64(skip) > info.Size:
		if skip != 0 {
			return fmt.Errorf("bytes is %d, after the first %d the memfd has %d", n, skip, max(info.Size-int64(skip), 0))
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

// file identifies a file: several descriptors and regions may share one.
type file struct{ dev, ino uint64 }
