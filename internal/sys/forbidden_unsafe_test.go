package sys

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// without runs f on a thread that a seccomp filter keeps from a system call, as containers and units do. The thread ends with it.
func without(t *testing.T, call uint32, f func()) {
	t.Helper()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
		}
		runtime.KeepAlive(&program)
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("no seccomp here: %v", err)
	}
}

// TestForbidden: a system call that a sandbox forbids is named, with what to do.
func TestForbidden(t *testing.T) {
	fd := memfd(t, 4096, MemfdOptions{})
	for _, c := range []struct {
		name string
		call uint32
		do   func() error
	}{
		{"statx", unix.SYS_STATX, func() error { _, err := Identify(fd); return err }},
		{"memfd_create", unix.SYS_MEMFD_CREATE, func() error { _, err := MemfdCreate("x", 1, MemfdOptions{}); return err }},
		{"pidfd_open", unix.SYS_PIDFD_OPEN, func() error { _, err := PidfdOpen(os.Getpid()); return err }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			without(t, c.call, func() { err = c.do() })
			if !errors.Is(err, ErrForbidden) || !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "system call "+c.name) {
				t.Errorf("%v", err)
			}
		})
	}
}
