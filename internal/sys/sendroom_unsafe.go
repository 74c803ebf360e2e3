package sys

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SendRoom returns how much of the kernel's memory the TCP socket fd may still
// take for what it sends (SO_MEMINFO, since Linux 4.12). What was sent takes
// it until the other end acknowledges, and a small write takes far more than
// its bytes. It allocates nothing on success. A socket that is full has less
// than nothing.
func SendRoom(fd uintptr) (int, error) {
	var info [unix.SK_MEMINFO_VARS]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("memory of fd %d: SO_MEMINFO: %w", fd, errno)
	}
	return int(info[unix.SK_MEMINFO_SNDBUF]) - int(info[unix.SK_MEMINFO_WMEM_QUEUED]), nil
}
