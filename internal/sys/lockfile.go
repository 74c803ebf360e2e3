package sys

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// LockFile opens path, creating it with mode 0600, and takes an exclusive lock
// that lasts until the file is closed or the process ends. When somebody else
// holds it, the error wraps EWOULDBLOCK. The file itself stays: removing it
// would let two processes hold "the" lock.
func LockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: another process holds it: %w", path, err)
	}
	return f, nil
}

// LockFileWait is LockFile, but waits for the holder. It is for short critical
// sections between cooperating processes.
func LockFileWait(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
