package sys

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// EventfdCreate makes an eventfd with count 0. With blocking false, which the
// runtime's poller needs, an empty one answers at once and EventfdRead gives
// 0; with blocking true EventfdRead holds the thread until it is signalled.
// O_NONBLOCK belongs to the open file: the process at the other end shares it.
func EventfdCreate(blocking bool) (int, error) {
	flags := unix.EFD_CLOEXEC
	if !blocking {
		flags |= unix.EFD_NONBLOCK
	}
	fd, err := unix.Eventfd(0, flags)
	if err != nil {
		return -1, fmt.Errorf("create eventfd: %w", err)
	}
	return fd, nil
}

var eventfdOne = binary.NativeEndian.AppendUint64(nil, 1)

// EventfdSignal adds 1 to the count and so wakes whoever waits. A count that
// is full already means "signalled", so EAGAIN is success. It allocates
// nothing. On a blocking eventfd a full count would block: EventfdRing is for
// one whose count a stranger controls.
func EventfdSignal(fd int) error {
	for {
		_, err := unix.Write(fd, eventfdOne)
		switch err {
		case nil, unix.EAGAIN:
			return nil
		case unix.EINTR:
			continue
		}
		return fmt.Errorf("signal eventfd %d: %w", fd, err)
	}
}

// EventfdRead takes the count and sets it to 0. On a non-blocking eventfd it
// returns 0 when there was no signal; on a blocking one it waits.
func EventfdRead(fd int) (uint64, error) {
	var buf [8]byte
	for {
		n, err := unix.Read(fd, buf[:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return 0, nil
		case err != nil:
			return 0, fmt.Errorf("read eventfd %d: %w", fd, err)
		case n != len(buf):
			return 0, fmt.Errorf("read eventfd %d: got %d bytes, want %d: not an eventfd", fd, n, len(buf))
		}
		return binary.NativeEndian.Uint64(buf[:]), nil
	}
}

// EventfdFull tells whether the count is so high that EventfdSignal would have
// to wait for somebody to take it.
func EventfdFull(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for {
		n, err := unix.Poll(p, 0)
		if err != unix.EINTR {
			return err == nil && n == 0
		}
	}
}

// EventfdDrain takes the count without ever blocking, also when a stranger who
// shares the eventfd made it a blocking one. 0: there was no signal. It fails
// before Linux 5.8.
func EventfdDrain(fd int) (uint64, error) {
	var buf [8]byte
	for {
		n, err := unix.Preadv2(fd, [][]byte{buf[:]}, -1, unix.RWF_NOWAIT)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return 0, nil
		case err != nil:
			return 0, fmt.Errorf("drain eventfd %d: %w", fd, err)
		case n != len(buf):
			return 0, fmt.Errorf("drain eventfd %d: got %d bytes, want %d: not an eventfd", fd, n, len(buf))
		}
		return binary.NativeEndian.Uint64(buf[:]), nil
	}
}
