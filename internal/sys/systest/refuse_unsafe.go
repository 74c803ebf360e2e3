// Package systest does to a test process what systems do to daemons.
package systest

import (
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RefuseFamily does to this process what RestrictAddressFamilies= of systemd does for a family that it does not name, or a kernel that does not have
// it: socket(2) fails with EAFNOSUPPORT. It cannot be undone.
func RefuseFamily(t testing.TB, family uint32) {
	t.Helper()
	const load, equal, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{ // of struct seccomp_data: the number of the system call is at 0, its first argument at 16
		{Code: load, K: 0},
		{Code: equal, K: syscall.SYS_SOCKET, Jf: 3},
		{Code: load, K: 16},
		{Code: equal, K: family, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(syscall.EAFNOSUPPORT)},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Skipf("no seccomp here: %v", err)
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		t.Skipf("no seccomp here: %v", errno)
	}
}
