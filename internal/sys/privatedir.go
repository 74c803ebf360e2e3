package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// CheckPrivateDir returns an error unless path is a directory (not a link to one) that this user owns and nobody else can enter. In a
// world-writable parent such as /tmp anybody could have made it.
func CheckPrivateDir(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a directory", path)
	case int(st.Uid) != unix.Geteuid():
		return fmt.Errorf("%s belongs to uid %d, not to %d", path, st.Uid, unix.Geteuid())
	case st.Mode&0o077 != 0:
		return fmt.Errorf("%s has mode %#o, want 0700", path, st.Mode&0o777)
	}
	return nil
}
