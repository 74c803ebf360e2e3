package sys

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestListenInASandbox: a group that the file has already, as that of the daemon's user, is not asked of the kernel. The unit forbids chown
// (SystemCallFilter=~@privileged).
func TestListenInASandbox(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: files cannot be given to another group")
	}
	const gid = 12345
	dir := t.TempDir()
	noErr(t, os.Chown(dir, -1, gid))
	noErr(t, os.Chmod(dir, 0o755|os.ModeSetgid)) // what is made in it has its group
	path := filepath.Join(dir, "s.sock")
	var err error
	without(t, unix.SYS_FCHOWNAT, func() {
		l, e := ListenSeqpacket(path, ListenOptions{Mode: 0o660, GID: gid})
		if err = e; e == nil {
			_ = l.Close()
		}
	})
	noErr(t, err)
	st, err := os.Stat(path)
	noErr(t, err)
	if have := st.Sys().(*syscall.Stat_t).Gid; have != gid || st.Mode().Perm() != 0o660 {
		t.Errorf("group %d, mode %v", have, st.Mode())
	}
}
