package sys

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Close closes fd. A negative fd is ignored, so that "none" needs no special
// case. It never retries: on Linux the descriptor is gone even after EINTR.
func Close(fd int) error {
	if fd < 0 {
		return nil
	}
	if err := unix.Close(fd); err != nil && err != unix.EINTR {
		return fmt.Errorf("close fd %d: %w", fd, err)
	}
	return nil
}

// CloseAll closes every descriptor of fds and ignores errors: it is for
// descriptors that came uninvited or after something else already failed.
func CloseAll(fds []int) {
	for _, fd := range fds {
		_ = Close(fd)
	}
}

// Dup returns a new close-on-exec descriptor for what fd refers to.
func Dup(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return -1, fmt.Errorf("duplicate fd %d: %w", fd, err)
	}
	return n, nil
}

// SetNonblock sets or clears O_NONBLOCK of the open file behind fd. Every
// process that shares the open file sees that.
func SetNonblock(fd int, on bool) error {
	if err := unix.SetNonblock(fd, on); err != nil {
		return fmt.Errorf("set non-blocking mode of fd %d: %w", fd, err)
	}
	return nil
}

// ErrUnpolled says that the Go runtime's poller did not take a descriptor. The
// runtime does not say why: its kind cannot wait, or the kernel lacked memory,
// or the user's epoll watches (fs.epoll.max_user_watches) were used up.
var ErrUnpolled = errors.New("the poller did not take it")

// PollFile makes fd, an eventfd, pipe, socket or pidfd, non-blocking and hands
// it to the Go runtime's poller, so that reads park a goroutine instead of a
// thread, and Close wakes them. From then on the file owns fd. When PollFile
// fails, fd is closed.
func PollFile(fd int, name string) (*os.File, error) {
	if err := SetNonblock(fd, true); err != nil {
		_ = Close(fd)
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	// Setting a deadline tells whether the file is polled. One that is not
	// reads once and then fails for good, however often it is asked.
	if err := f.SetDeadline(time.Time{}); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("poll file %q: fd %d: %w", name, fd, ErrUnpolled)
	}
	return f, nil
}

// Control calls fn with the descriptor behind c, which stays open during the
// call. It returns fn's error, or why the descriptor is gone.
func Control(c syscall.Conn, fn func(fd int) error) error {
	rc, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("raw connection: %w", err)
	}
	var inner error
	if err := rc.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return fmt.Errorf("raw connection: %w", err)
	}
	return inner
}
