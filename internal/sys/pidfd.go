package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// PidfdOpen returns a descriptor for process pid that becomes readable when
// the process ends. It fails with ESRCH when there is no such process here.
func PidfdOpen(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, fmt.Errorf("open pidfd of pid %d: %w", pid, forbidden("pidfd_open", err))
	}
	return fd, nil
}

// PidfdAlive reports whether the process behind pidfd still runs. A process
// that ended but was not yet waited for counts as ended.
func PidfdAlive(pidfd int) (bool, error) {
	ready, err := pollNow(pidfd, unix.POLLIN)
	if err == nil && ready&unix.POLLNVAL != 0 {
		err = unix.EBADF
	}
	if err != nil {
		return false, fmt.Errorf("poll pidfd %d: %w", pidfd, err)
	}
	return ready == 0, nil
}

// PidfdSignal sends sig to the process behind pidfd; the pid cannot have been
// reused meanwhile.
func PidfdSignal(pidfd int, sig int) error {
	if err := unix.PidfdSendSignal(pidfd, unix.Signal(sig), nil, 0); err != nil {
		return fmt.Errorf("send signal %d to pidfd %d: %w", sig, pidfd, err)
	}
	return nil
}
