package sys

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// EventfdCreate makes an eventfd with count 0. With blocking false, which the
// runtime's poller needs, EventfdRead of an empty one returns 0 at once. With
// blocking true, it holds the thread until the eventfd is signalled. O_NONBLOCK
// belongs to the open file, which the process at the other end shares.
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

// EventfdSignal adds 1 to the count and so wakes whoever waits. A count that is
// full already means "signalled", so EAGAIN is success. It allocates nothing.
// With a full count, a blocking eventfd would block it: where a stranger
// controls the count, use EventfdRing.
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

// EventfdFull reports whether the count is so high that EventfdSignal would
// have to wait for somebody to take it.
func EventfdFull(fd int) bool {
	ready, err := pollNow(fd, unix.POLLOUT)
	return err == nil && ready == 0
}

// EventfdDrain takes the count without ever blocking, even when a stranger who
// shares the eventfd made it a blocking one. It returns 0 if there was no
// signal. It fails before Linux 5.8.
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
