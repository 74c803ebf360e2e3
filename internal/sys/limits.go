package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Limit is a resource limit of this process: Cur binds, and may be raised up
// to Max. Unlimited means none.
type Limit struct{ Cur, Max uint64 }

// Unlimited is the value of a limit that does not bind.
const Unlimited = ^uint64(0)

// MemlockLimit returns how many bytes this process may lock in memory, which
// also bounds what a NIC may register.
func MemlockLimit() (Limit, error) { return getLimit(unix.RLIMIT_MEMLOCK, "memlock") }

// NofileLimit returns how many descriptors this process may have open.
func NofileLimit() (Limit, error) { return getLimit(unix.RLIMIT_NOFILE, "nofile") }

// RaiseMemlock raises the memlock limit to want bytes, beyond the hard limit
// when the process may, and returns what binds afterwards.
func RaiseMemlock(want uint64) (Limit, error) {
	return raiseLimit(unix.RLIMIT_MEMLOCK, want, "memlock")
}

func getLimit(resource int, name string) (Limit, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(resource, &r); err != nil {
		return Limit{}, fmt.Errorf("get %s limit: %w", name, err)
	}
	return Limit{Cur: r.Cur, Max: r.Max}, nil
}

func raiseLimit(resource int, want uint64, name string) (Limit, error) {
	l, err := getLimit(resource, name)
	if err != nil || l.Cur >= want {
		return l, err
	}
	r := unix.Rlimit{Cur: want, Max: max(l.Max, want)}
	if unix.Setrlimit(resource, &r) != nil {
		r = unix.Rlimit{Cur: min(want, l.Max), Max: l.Max}
		if err := unix.Setrlimit(resource, &r); err != nil {
			return l, fmt.Errorf("raise %s limit from %d to %d: %w", name, l.Cur, r.Cur, err)
		}
	}
	return Limit{Cur: r.Cur, Max: r.Max}, nil
}
