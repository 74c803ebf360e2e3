package sys

import (
	"time"

	"golang.org/x/sys/unix"
)

// Nap sleeps in the kernel for d, or until a signal. Unlike time.Sleep it keeps
// its thread, and to the Go runtime it is a system call under way.
func Nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil)
}
