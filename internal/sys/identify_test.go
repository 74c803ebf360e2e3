package sys

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestIdentify(t *testing.T) {
	keep := func(fd int, err error) int {
		t.Helper()
		noErr(t, err)
		t.Cleanup(func() { _ = Close(fd) })
		return fd
	}
	open := func(path string, flags int) int {
		return keep(syscall.Open(path, flags|syscall.O_CLOEXEC, 0o600))
	}
	file := filepath.Join(t.TempDir(), "file")
	var pipe [2]int
	noErr(t, syscall.Pipe2(pipe[:], syscall.O_CLOEXEC))
	for name, c := range map[string]struct {
		fd       int
		kind     Kind
		writable bool
	}{
		"memfd":      {memfd(t, 4096, MemfdOptions{}), KindMemfd, true},
		"file":       {open(file, syscall.O_CREAT|syscall.O_RDWR), KindFile, true},
		"read-only":  {open(file, syscall.O_RDONLY), KindFile, false},
		"directory":  {open("/", syscall.O_RDONLY|syscall.O_DIRECTORY), KindDir, false},
		"device":     {open("/dev/null", syscall.O_RDONLY), KindDevice, false},
		"pipe":       {keep(pipe[0], nil), KindPipe, false},
		"pipe's end": {keep(pipe[1], nil), KindPipe, true},
		"socket":     {keep(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)), KindSocket, true},
		"eventfd":    {keep(EventfdCreate(false)), KindEventfd, true},
		"pidfd":      {keep(PidfdOpen(os.Getpid())), KindPidfd, true},
	} {
		info, err := Identify(c.fd)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if info.Kind != c.kind || info.Writable != c.writable {
			t.Errorf("%s: identified as %v, writable %v; want %v, %v", name, info.Kind, info.Writable, c.kind, c.writable)
		}
		if info.IsMemfd() != (c.kind == KindMemfd) {
			t.Errorf("%s: IsMemfd is %v", name, info.IsMemfd())
		}
	}
	if _, err := Identify(1 << 20); err == nil {
		t.Error("a closed descriptor was identified")
	}
}

// A file of /dev/shm has seals and lies in shared memory like a memfd, yet its
// size cannot be sealed, not even once it has lost its name.
func TestShmemFileIsNoMemfd(t *testing.T) {
	f, err := os.CreateTemp("/dev/shm", "kvpipe-sys-test")
	noErr(t, err)
	defer f.Close()
	info, err := Identify(int(f.Fd()))
	noErr(t, os.Remove(f.Name()))
	noErr(t, err)
	if info.Kind != KindShmem {
		t.Errorf("named file: %v, want %v", info.Kind, KindShmem)
	}
	if err := AddSeals(int(f.Fd()), SealSize); err == nil {
		t.Error("an unlinked file took size seals")
	}
}

func TestSparse(t *testing.T) {
	const size = 9*4096 + 1
	fd := memfd(t, size, MemfdOptions{})
	sparse := func() bool {
		info, err := Identify(fd)
		noErr(t, err)
		if info.Size != size {
			t.Fatalf("size %d, want %d", info.Size, size)
		}
		return info.Sparse()
	}
	if !sparse() {
		t.Error("an empty memfd is not sparse")
	}
	noErr(t, Allocate(fd, 0, size))
	if sparse() {
		t.Error("an allocated memfd is sparse")
	}
	noErr(t, PunchHole(fd, 4096, 4096))
	if !sparse() {
		t.Error("a memfd with a hole is not sparse")
	}
	noErr(t, Allocate(fd, 4096, 4096))
	noErr(t, PunchHole(fd, 9*4096, 4096))
	if !sparse() {
		t.Error("a memfd without its last page is not sparse")
	}
}

func TestSameFile(t *testing.T) {
	a := memfd(t, 4096, MemfdOptions{})
	b, err := Dup(a)
	noErr(t, err)
	defer func() { noErr(t, Close(b)) }()
	other := memfd(t, 4096, MemfdOptions{})
	ia, _ := Identify(a)
	ib, _ := Identify(b)
	io, _ := Identify(other)
	if ia.Dev != ib.Dev || ia.Ino != ib.Ino {
		t.Error("a duplicate has another identity")
	}
	if ia.Dev == io.Dev && ia.Ino == io.Ino {
		t.Error("two memfds have one identity")
	}
}
