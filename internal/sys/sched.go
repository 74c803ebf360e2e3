package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// SetThreadNice sets the niceness of the calling thread, -20 to 19; lowering it
// needs CAP_SYS_NICE. Call runtime.LockOSThread first, and do not unlock: the
// thread keeps its niceness for whatever runs on it next.
func SetThreadNice(nice int) error {
	// Linux keeps a niceness per thread although POSIX says per process.
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice); err != nil {
		return fmt.Errorf("set niceness of thread to %d: %w", nice, err)
	}
	return nil
}
