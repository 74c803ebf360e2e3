package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// pollNow returns which of the events fd is ready for now, besides failures
// that poll always reports. Even a poll that does not wait fails with EINTR
// when a signal comes, and the Go runtime sends signals to its own threads.
func pollNow(fd int, events int16) (int16, error) {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		if _, err := unix.Poll(p[:], 0); err != unix.EINTR {
			return p[0].Revents, err
		}
	}
}

// Readable reports whether a read from c would not block: there is something,
// or the end. A connection that is closed at this end is not readable.
func Readable(c syscall.Conn) (yes bool) {
	_ = Control(c, func(fd int) error {
		ready, err := pollNow(fd, unix.POLLIN)
		yes = err == nil && ready != 0
		return nil
	})
	return yes
}
