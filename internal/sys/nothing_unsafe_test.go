package sys

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"unsafe"
)

// sendNothing sends a message of no bytes, with descriptors or without. Go's own calls would add a byte.
func sendNothing(t *testing.T, c *net.UnixConn, fds ...int) {
	t.Helper()
	var m syscall.Msghdr
	if oob := syscall.UnixRights(fds...); len(fds) > 0 {
		m.Control, m.Controllen = &oob[0], uint64(len(oob))
	}
	noErr(t, Control(c, func(fd int) error {
		if _, _, errno := syscall.Syscall(syscall.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), 0); errno != 0 {
			return errno
		}
		return nil
	}))
}

// TestNothingWithDescriptors: a message of no bytes looks like the end of the connection, unless it brings descriptors.
func TestNothingWithDescriptors(t *testing.T) {
	fd := memfd(t, 4096, MemfdOptions{})
	for _, c := range []struct {
		name string
		fds  []int
		want error
	}{
		{"none", nil, io.EOF},
		{"one", []int{fd}, ErrEmpty},
		{"two, one allowed", []int{fd, fd}, ErrEmpty},
		{"many, one allowed", []int{fd, fd, fd, fd}, ErrEmpty},
	} {
		a, b := pair(t)
		sendNothing(t, a, c.fds...)
		n, fds, err := Recv(b, make([]byte, 4), 1)
		CloseAll(fds)
		if !errors.Is(err, c.want) || n != 0 || (len(fds) == 0) != (len(c.fds) == 0) {
			t.Errorf("%s: %d bytes, descriptors %v, %v; want %v", c.name, n, fds, err, c.want)
		}
	}
}
