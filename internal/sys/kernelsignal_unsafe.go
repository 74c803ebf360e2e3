package sys

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// EventfdRing is EventfdSignal for an eventfd that a stranger shares. The
// stranger may have filled its count and made it a blocking one; EventfdRing
// then holds the thread until EventfdDrain. Where EventfdDrain does not work,
// which is before Linux 5.8 and where a sandbox forbids it, the kernel signals
// instead, and that never waits.
func EventfdRing(fd int) error {
	if k := theKernelSignals(); k != nil {
		return k.signal(fd)
	}
	return EventfdSignal(fd)
}

// theKernelSignals is nil where EventfdDrain works, and where there is no AIO.
var theKernelSignals = sync.OnceValue(func() *kernelSignals {
	if drains() {
		return nil
	}
	k, err := newKernelSignals()
	if err != nil {
		return nil
	}
	return k
})

// drains reports whether EventfdDrain works here.
func drains() bool {
	fd, err := EventfdCreate(true)
	if err != nil {
		return true // this tells nothing about EventfdDrain
	}
	defer func() { _ = Close(fd) }()
	_, err = EventfdDrain(fd)
	return err == nil
}

// kernelSignals has the kernel signal eventfds: each at the end of an AIO read
// of no bytes from /dev/null.
type kernelSignals struct {
	null int

	mu   sync.Mutex
	aio  uintptr
	read iocb
	list [1]*iocb
	done [1]ioEvent
}

// iocb and ioEvent are the kernel's structures of those names. Fields that have
// no name here are 0: data, key and flags, the opcode (IOCB_CMD_PREAD), and
// what is read.
type iocb struct {
	_       uint64
	_       [2]uint32
	_       uint16
	_       int16
	fd      uint32
	_       [2]uint64
	_       int64
	_       uint64
	options uint32
	resfd   uint32
}

type ioEvent struct{ _ [4]uint64 }

// resfd asks that an eventfd be signalled at the end (IOCB_FLAG_RESFD).
const resfd = 1

func newKernelSignals() (*kernelSignals, error) {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/null: %w", err)
	}
	k := &kernelSignals{null: null, read: iocb{fd: uint32(null), options: resfd}}
	k.list[0] = &k.read
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, uintptr(len(k.done)), uintptr(unsafe.Pointer(&k.aio)), 0); errno != 0 {
		_ = Close(null)
		return nil, fmt.Errorf("io_setup: %w", errno)
	}
	return k, nil
}

func (k *kernelSignals) signal(fd int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read.resfd = uint32(fd)
	if _, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, k.aio, 1, uintptr(unsafe.Pointer(&k.list))); errno != 0 {
		return fmt.Errorf("signal eventfd %d: io_submit: %w", fd, errno)
	}
	for { // the read has ended, so this does not wait
		_, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, k.aio, 1, 1, uintptr(unsafe.Pointer(&k.done)), 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return fmt.Errorf("signal eventfd %d: io_getevents: %w", fd, errno)
		}
		return nil
	}
}

func (k *kernelSignals) close() {
	_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, k.aio, 0, 0)
	_ = Close(k.null)
}
