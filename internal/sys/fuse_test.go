package sys

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// foreignFile opens a file of a file system (FUSE) that this process serves. asked counts who wanted the file's attributes, which it
// might never answer.
func foreignFile(t *testing.T) (fd int, asked *atomic.Int32) {
	t.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE: %v", err)
	}
	path := filepath.Join(t.TempDir(), "file")
	noErr(t, os.WriteFile(path, nil, 0o600))
	if err := unix.Mount("test", path, "fuse", unix.MS_NODEV|unix.MS_NOSUID, fmt.Sprintf("fd=%d,rootmode=100000,user_id=0,group_id=0", dev)); err != nil {
		_ = Close(dev)
		t.Skipf("FUSE cannot be mounted: %v", err)
	}
	asked = new(atomic.Int32)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for buf := make([]byte, 1<<17); ; {
			n, err := unix.Read(dev, buf)
			if err != nil {
				return // the file system is gone
			}
			op := binary.NativeEndian.Uint32(buf[4:])
			const getattr, initialize, enosys = 3, 26, 38
			answer := make([]byte, 16)
			copy(answer[8:], buf[8:16]) // the request's number
			switch {
			case n < 40:
				continue
			case op == initialize:
				answer = append(answer, make([]byte, 64)...)
				binary.NativeEndian.PutUint32(answer[16:], 7)
				binary.NativeEndian.PutUint32(answer[20:], 31)
				binary.NativeEndian.PutUint32(answer[36:], 4096) // max_write
			default:
				if op == getattr {
					asked.Add(1)
				}
				no := -enosys // it opens and closes all the same
				binary.NativeEndian.PutUint32(answer[4:], uint32(no))
			}
			binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
			_, _ = unix.Write(dev, answer)
		}
	}()
	fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	t.Cleanup(func() {
		_ = Close(fd)
		noErr(t, unix.Unmount(path, unix.MNT_DETACH))
		<-served
		_ = Close(dev)
	})
	noErr(t, err)
	return fd, asked
}

// TestIdentifyAsksNoStranger: a process that serves a file does not get to answer, or not to.
func TestIdentifyAsksNoStranger(t *testing.T) {
	fd, asked := foreignFile(t)
	info, err := Identify(fd)
	if err != nil || info.Kind != KindFile || asked.Load() != 0 {
		t.Errorf("%+v, %v; its file system was asked %d times", info, err, asked.Load())
	}
}
