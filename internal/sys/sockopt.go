package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// SetRcvLowat sets how many bytes must have arrived before the socket counts
// as readable. The end of the stream and errors wake a reader all the same.
// Set it to at most what is still to come, and read without blocking. It
// allocates nothing on success.
func SetRcvLowat(fd uintptr, n int) error {
	return setsockopt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n, "SO_RCVLOWAT")
}

// SetNoDelay switches Nagle's algorithm off, or on again.
func SetNoDelay(fd uintptr, on bool) error {
	v := 0
	if on {
		v = 1
	}
	return setsockopt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, v, "TCP_NODELAY")
}

// SetSendBuffer asks for a send buffer of n bytes and returns what the kernel
// gave (it doubles the number for its own use). With CAP_NET_ADMIN the
// system's limit does not bind.
func SetSendBuffer(fd uintptr, n int) (int, error) {
	return setBuffer(int(fd), n, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, "SO_SNDBUF")
}

// SetRecvBuffer asks for a receive buffer of n bytes, as SetSendBuffer. It
// ends the kernel's own tuning of that buffer.
func SetRecvBuffer(fd uintptr, n int) (int, error) {
	return setBuffer(int(fd), n, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, "SO_RCVBUF")
}

func setBuffer(fd, n, force, plain int, name string) (int, error) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, n) != nil {
		if err := setsockopt(fd, unix.SOL_SOCKET, plain, n, name); err != nil {
			return 0, err
		}
	}
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, plain)
	if err != nil {
		return 0, fmt.Errorf("get %s of fd %d: %w", name, fd, err)
	}
	return got, nil
}

// PendingBytes returns how many bytes wait in the receive queue of the stream
// socket fd.
func PendingBytes(fd uintptr) (int, error) {
	n, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ)
	if err != nil {
		return 0, fmt.Errorf("pending bytes of fd %d: %w", fd, err)
	}
	return n, nil
}

func setsockopt(fd, level, opt, v int, name string) error {
	if err := unix.SetsockoptInt(fd, level, opt, v); err != nil {
		return fmt.Errorf("set %s of fd %d to %d: %w", name, fd, v, err)
	}
	return nil
}

// UnsentBytes returns how many bytes were written to the TCP socket fd and are not acknowledged by the other end yet
// (SIOCOUTQ, tcp(7)). Together with SO_SNDBUF it tells whether a write can block.
func UnsentBytes(fd uintptr) (int, error) {
	n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
	if err != nil {
		return 0, fmt.Errorf("unsent bytes of fd %d: %w", fd, err)
	}
	return n, nil
}
