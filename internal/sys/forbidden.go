package sys

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrForbidden says that a sandbox does not let a system call through. Its text says what to do about that, also to
// an engine that gets to see it.
var ErrForbidden = errors.New("allow it in kvpiped's sandbox (its container's seccomp profile, SystemCallFilter= of its unit)")

// forbidden adds that to the error of a system call, where it is why. It is for calls that have no other cause to fail so.
func forbidden(call string, err error) error {
	switch err {
	case unix.EPERM, unix.EACCES, unix.ENOSYS:
		return fmt.Errorf("system call %s: %w: %w", call, err, ErrForbidden)
	}
	return err
}
