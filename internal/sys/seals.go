package sys

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Seals is the set of restrictions on a memfd. Seals are only ever added.
type Seals int

// The seals. SealWrite also forbids writes through mappings, and is refused
// while a writable mapping exists. SealFutureWrite leaves existing mappings
// writable and forbids every later one, by any process.
const (
	SealSeal        Seals = unix.F_SEAL_SEAL
	SealShrink      Seals = unix.F_SEAL_SHRINK
	SealGrow        Seals = unix.F_SEAL_GROW
	SealWrite       Seals = unix.F_SEAL_WRITE
	SealFutureWrite Seals = unix.F_SEAL_FUTURE_WRITE
)

// SealSize fixes the size for good: truncation cannot make whoever maps the
// file fault. (Punching holes stays possible; see FileInfo.Sparse.)
const SealSize = SealShrink | SealGrow

var sealNames = []struct {
	bit  Seals
	name string
}{
	{SealSeal, "seal"},
	{SealShrink, "shrink"},
	{SealGrow, "grow"},
	{SealWrite, "write"},
	{SealFutureWrite, "future_write"},
}

// Has reports whether every seal of want is in s.
func (s Seals) Has(want Seals) bool { return s&want == want }

// String lists the seals by name, "shrink|grow", or "none".
func (s Seals) String() string {
	var parts []string
	for _, n := range sealNames {
		if s&n.bit != 0 {
			parts = append(parts, n.name)
			s &^= n.bit
		}
	}
	if s != 0 {
		parts = append(parts, fmt.Sprintf("%#x", int(s)))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, "|")
}

// AddSeals adds s to the seals of the memfd fd.
func AddSeals(fd int, s Seals) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, int(s)); err != nil {
		return fmt.Errorf("add seals %v to fd %d: %w", s, fd, err)
	}
	return nil
}

// GetSeals returns the seals of fd. It fails with EINVAL when fd is not a file
// in shared memory, and so no memfd.
func GetSeals(fd int) (Seals, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, fmt.Errorf("get seals of fd %d: %w", fd, err)
	}
	return Seals(n), nil
}
