package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// CheckPrivateDir returns an error unless path is a directory (not a link to
// one) that this user owns, with mode 0700. In a world-writable parent such as
// /tmp anybody could have made it. capi/path.c has the same rule, in the same
// words.
func CheckPrivateDir(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a directory", path)
	case int(st.Uid) != unix.Geteuid() || st.Mode&0o7777 != 0o700:
		return fmt.Errorf("%s belongs to uid %d with mode %04o, must be uid %d with mode 0700", path, st.Uid, st.Mode&0o7777, unix.Geteuid())
	}
	return nil
}
