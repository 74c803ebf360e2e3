package sys

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Cred says who was at the other end of a unix socket when it connected. PID
// is 0 when the process is not visible here, as between pid namespaces.
type Cred struct {
	PID int
	UID uint32
	GID uint32
}

// PeerCred returns the credentials that the kernel recorded when the peer of
// conn connected (or, for the connecting end, when the peer listened).
func PeerCred(conn *net.UnixConn) (Cred, error) {
	var c Cred
	err := Control(conn, func(fd int) error {
		u, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return fmt.Errorf("peer credentials: %w", err)
		}
		c = Cred{PID: int(u.Pid), UID: u.Uid, GID: u.Gid}
		return nil
	})
	return c, err
}

// ErrNoPidfd says that the liveness of a peer cannot be watched by pidfd: its
// process is not visible here. Only the end of the connection tells.
var ErrNoPidfd = errors.New("peer process is not visible: no pidfd")

// PeerPidfd returns a pidfd of the process that connected, which the caller
// closes. It uses SO_PEERPIDFD (Linux 6.5), which cannot be fooled by a reused
// pid. Without that, it opens the pid of cred, and checks that one process had
// it meanwhile by the start time, which it reads from procRoot before and
// after. The error is ESRCH for a peer that has ended, ErrNoPidfd for an
// invisible one, and that of reading procRoot for one that is hidden there.
func PeerPidfd(conn *net.UnixConn, cred Cred, procRoot string) (int, error) {
	pidfd := -1
	err := Control(conn, func(fd int) error {
		n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		if err != nil {
			return err
		}
		pidfd = n // pidfds are always close-on-exec
		return nil
	})
	switch {
	case err == nil:
		return pidfd, nil
	case errors.Is(err, unix.ENOPROTOOPT):
		return pidfdByPID(cred.PID, procRoot)
	case errors.Is(err, unix.ENODATA), cred.PID <= 0:
		return -1, ErrNoPidfd
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ESRCH):
		// The kernel says EINVAL for a peer that was reaped already.
		return -1, fmt.Errorf("pidfd of peer pid %d: %w", cred.PID, unix.ESRCH)
	}
	return -1, fmt.Errorf("pidfd of peer pid %d: %w", cred.PID, err)
}

func pidfdByPID(pid int, procRoot string) (int, error) {
	if pid <= 0 {
		return -1, ErrNoPidfd
	}
	before, err := StartTime(procRoot, pid)
	if err != nil && runs(pid) {
		return -1, fmt.Errorf("pidfd of peer pid %d: %w", pid, err)
	}
	if err != nil {
		return -1, fmt.Errorf("pidfd of peer pid %d: %w: %w", pid, unix.ESRCH, err)
	}
	fd, err := PidfdOpen(pid)
	if err != nil {
		return -1, err
	}
	after, err := StartTime(procRoot, pid)
	if err == nil && after != before {
		err = errors.New("the pid changed hands")
	}
	if err != nil {
		_ = Close(fd)
		return -1, fmt.Errorf("pidfd of peer pid %d: %w: %w", pid, unix.ESRCH, err)
	}
	return fd, nil
}

// runs reports whether there is such a process.
func runs(pid int) bool {
	fd, err := PidfdOpen(pid)
	if err != nil {
		return false
	}
	alive, err := PidfdAlive(fd)
	return Close(fd) == nil && err == nil && alive
}
