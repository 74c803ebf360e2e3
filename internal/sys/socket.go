package sys

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// WaitSocket blocks its thread until the socket fd can be read, or written,
// without blocking, has failed, or was shut down, and returns true. It returns
// false after d, which is rounded up to milliseconds; a negative d has no end.
// It also returns true after a signal: try the socket and wait again.
func WaitSocket(fd int, write bool, d time.Duration) bool {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if write {
		p[0].Events = unix.POLLOUT
	}
	ms := -1
	if d >= 0 {
		ms = int((d + time.Millisecond - 1) / time.Millisecond)
	}
	n, err := unix.Poll(p[:], ms)
	return n > 0 || err != nil
}

// HungUp reports whether the other end of a connected unix socket is closed,
// even if what it sent before has not been read yet. A connection that is
// closed at this end counts, too.
func HungUp(c syscall.Conn) bool {
	up := false
	_ = Control(c, func(fd int) error {
		ready, err := pollNow(fd, 0)
		up = err != nil || ready&unix.POLLHUP == 0
		return nil
	})
	return !up
}

// Listening reports whether connections can be accepted from a socket.
func Listening(c syscall.Conn) bool {
	listens := 0
	_ = Control(c, func(fd int) (err error) {
		listens, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		return err
	})
	return listens != 0
}

// ListenAgain makes this process the one that listens at a unix socket, by the
// kernel's word to who connects from now on (PeerCred). Before, that was the
// process that listened first. Its queue gets as long as that of a socket which
// is made here.
func ListenAgain(c syscall.Conn) error {
	return Control(c, func(fd int) error {
		if err := unix.Listen(fd, -1); err != nil { // the kernel takes it for net.core.somaxconn
			return fmt.Errorf("listen again: %w", err)
		}
		return nil
	})
}

// Shutdown ends both directions of the connected socket fd, for every
// descriptor of it, and wakes whoever waits for it. What has arrived can still
// be read.
func Shutdown(fd int) error {
	if err := unix.Shutdown(fd, unix.SHUT_RDWR); err != nil {
		return fmt.Errorf("shut down fd %d: %w", fd, err)
	}
	return nil
}

// HasIPv6 reports whether this process can have sockets of IPv6. A kernel that
// was started with ipv6.disable=1 has none.
func HasIPv6() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return !errors.Is(err, unix.EAFNOSUPPORT)
	}
	_ = Close(fd)
	return true
}
