package sys

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SetRcvLowat sets how many bytes must have arrived before the socket counts
// as readable. The end of the stream and errors wake a reader all the same.
// Set it to at most what is still to come, and read without blocking. It
// allocates nothing on success.
func SetRcvLowat(fd uintptr, n int) error {
	return setsockopt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n, "SO_RCVLOWAT")
}

// FreeBind is for net.ListenConfig's Control. It lets the socket be bound to an
// address that no interface has yet; the socket serves it once one has
// (IP_FREEBIND, ip(7); IPV6_FREEBIND, since Linux 4.15). network is "tcp4",
// "tcp6", "udp4" or "udp6".
func FreeBind(network, _ string, c syscall.RawConn) error {
	level, opt, name := unix.SOL_IP, unix.IP_FREEBIND, "IP_FREEBIND"
	if network[len(network)-1] == '6' {
		level, opt, name = unix.SOL_IPV6, unix.IPV6_FREEBIND, "IPV6_FREEBIND"
	}
	var err error
	return errors.Join(c.Control(func(fd uintptr) { err = setsockopt(int(fd), level, opt, 1, name) }), err)
}

func setsockopt(fd, level, opt, v int, name string) error {
	if err := unix.SetsockoptInt(fd, level, opt, v); err != nil {
		return fmt.Errorf("set %s of fd %d to %d: %w", name, fd, v, err)
	}
	return nil
}

// SetUserTimeout bounds how long the TCP socket fd may get nowhere with what it
// has to send, because the other end cannot be reached or its buffer stays
// full. It also bounds how long keep-alives may go unanswered
// (TCP_USER_TIMEOUT, tcp(7)). Then the connection fails with ETIMEDOUT.
func SetUserTimeout(fd int, d time.Duration) error {
	return setsockopt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()), "TCP_USER_TIMEOUT")
}
