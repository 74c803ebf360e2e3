package sys

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrForbidden says that a sandbox does not let a system call through. Its text
// says what to do about that, since an engine may see it, too.
var ErrForbidden = errors.New("allow it in kvpiped's sandbox (its container's seccomp profile, SystemCallFilter= of its unit)")

// forbidden adds ErrForbidden to the error of a system call that a sandbox may
// have refused. It is for calls that fail with these errors for no other
// reason.
func forbidden(call string, err error) error {
	switch err {
	case unix.EPERM, unix.EACCES, unix.ENOSYS:
		return fmt.Errorf("system call %s: %w: %w", call, err, ErrForbidden)
	}
	return err
}
