package sessiontest

import (
	"runtime"
	"syscall"
	"unsafe"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// SendNothing sends descriptors with a message of no bytes; Go's own calls would add a byte.
func (c *Client) SendNothing(fds ...int) error {
	oob := syscall.UnixRights(fds...)
	m := syscall.Msghdr{Control: &oob[0], Controllen: uint64(len(oob))}
	defer runtime.KeepAlive(oob)
	return sys.Control(c.Conn, func(fd int) error {
		if _, _, errno := syscall.Syscall(syscall.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), syscall.MSG_NOSIGNAL); errno != 0 {
			return errno
		}
		return nil
	})
}
