package sys

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Kind is what a descriptor refers to.
type Kind int

// The kinds. KindShmem is a file of tmpfs or hugetlbfs that has, or had, a
// name; KindMemfd never had one and is the only kind that takes size seals.
const (
	KindOther Kind = iota
	KindMemfd
	KindHugeMemfd
	KindShmem
	KindFile
	KindDir
	KindDevice
	KindPipe
	KindSocket
	KindEventfd
	KindPidfd
	KindDMABuf
)

var kindNames = [...]string{
	KindOther: "other", KindMemfd: "memfd", KindHugeMemfd: "hugetlb memfd", KindShmem: "shared memory file",
	KindFile: "ordinary file", KindDir: "directory", KindDevice: "device", KindPipe: "pipe", KindSocket: "socket",
	KindEventfd: "eventfd", KindPidfd: "pidfd", KindDMABuf: "dma-buf",
}

// String names the kind as error messages want it.
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return "kind " + strconv.Itoa(int(k))
	}
	return kindNames[k]
}

// FileInfo says what a descriptor is. Sizes are in bytes.
type FileInfo struct {
	Kind Kind
	// Size is the file's length, and Allocated what its pages take. Both are
	// zero for what is no file in shared memory, as are all fields below except
	// Writable.
	Size, Allocated int64
	// PageSize is the unit of allocation: the base page, or the huge page of
	// a hugetlb memfd.
	PageSize int64
	Seals    Seals
	// Writable says whether the descriptor was opened for writing.
	Writable bool
	// Dev and Ino are the file's identity: equal for two descriptors of one
	// memfd.
	Dev, Ino uint64
}

// IsMemfd reports whether the descriptor is a memfd, of base or huge pages.
func (i FileInfo) IsMemfd() bool { return i.Kind == KindMemfd || i.Kind == KindHugeMemfd }

// Sparse reports whether some page of the file is not allocated. Touching such
// a page through a mapping allocates it, or raises SIGBUS when there is no
// memory for it. Allocated is whole pages, so it is less than Size if one is
// missing, even the last, of which the file has only a part.
func (i FileInfo) Sparse() bool { return i.Allocated < i.Size }

// Identify says what fd is, without reading or changing it. It is how a
// descriptor from another process is judged before it is mapped. It asks no
// file system but those of memfds for anything: one that a process serves
// (FUSE) answers when that process likes. For what is no file in shared memory
// it tells Kind and Writable alone.
func Identify(fd int) (FileInfo, error) {
	seals, err := GetSeals(fd)
	shared := err == nil
	mode, err := fileType(fd)
	if err != nil {
		return FileInfo{}, fmt.Errorf("identify fd %d: %w", fd, err)
	}
	var info FileInfo
	if fl, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil {
		access := fl & unix.O_ACCMODE
		info.Writable = access == unix.O_RDWR || access == unix.O_WRONLY
	}
	switch mode {
	case unix.S_IFREG:
		info.Kind = KindFile
		if shared {
			return info, info.measure(fd, seals)
		}
	case unix.S_IFDIR:
		info.Kind = KindDir
	case unix.S_IFCHR, unix.S_IFBLK:
		info.Kind = KindDevice
	case unix.S_IFIFO:
		info.Kind = KindPipe
	case unix.S_IFSOCK:
		info.Kind = KindSocket
	}
	// Anonymous inodes carry no type bits, and pidfds and dma-bufs claim to be
	// files: only the link in /proc tells them apart.
	if info.Kind == KindOther || info.Kind == KindFile {
		if k := anonKind(fd); k != KindOther {
			info.Kind = k
		}
	}
	return info, nil
}

// fileType returns the type bits of a file's mode as the kernel has them,
// without asking whoever serves the file.
func fileType(fd int) (uint16, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	return st.Mode & unix.S_IFMT, forbidden("statx", err)
}

// measure fills in what only a file in shared memory has. Such a file is a
// memfd if it has both seals and no name.
func (i *FileInfo) measure(fd int, seals Seals) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("identify fd %d: %w", fd, err)
	}
	i.Kind, i.Seals = KindShmem, seals
	i.Size, i.Allocated, i.PageSize = st.Size, st.Blocks*512, int64(st.Blksize)
	i.Dev, i.Ino = uint64(st.Dev), st.Ino
	var fs unix.Statfs_t
	// A named file of tmpfs is born with SealSeal alone and can get no other
	// seal, so unlinking it does not turn it into a sealable memfd.
	if err := unix.Fstatfs(fd, &fs); err != nil || st.Nlink != 0 {
		return nil
	}
	if uint64(fs.Type) == unix.HUGETLBFS_MAGIC {
		i.Kind = KindHugeMemfd
		return nil
	}
	i.Kind = KindMemfd
	// With transparent huge pages st_blksize is their size, which is only a
	// preference: allocation still goes by base pages.
	i.PageSize = int64(os.Getpagesize())
	return nil
}

func anonKind(fd int) Kind {
	link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return KindOther
	}
	switch {
	case link == "anon_inode:[eventfd]":
		return KindEventfd
	case link == "anon_inode:[pidfd]", strings.HasPrefix(link, "pidfd:"):
		return KindPidfd
	case strings.HasPrefix(link, "/dmabuf:"):
		return KindDMABuf
	}
	return KindOther
}
