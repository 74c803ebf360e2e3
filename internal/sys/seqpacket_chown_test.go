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
	gid := 12345
	dir := t.TempDir()
	noErr(t, os.Chown(dir, -1, gid))
	noErr(t, os.Chmod(dir, 0o755|os.ModeSetgid)) // what is made in it has its group
	path := filepath.Join(dir, "s.sock")
	var err error
	without(t, unix.SYS_FCHOWNAT, func() {
		l, e := ListenSeqpacket(path, ListenOptions{Mode: 0o660, GID: new(gid)})
		if err = e; e == nil {
			_ = l.Close()
		}
	})
	noErr(t, err)
	st, err := os.Stat(path)
	noErr(t, err)
	if have := st.Sys().(*syscall.Stat_t).Gid; int(have) != gid || st.Mode().Perm() != 0o660 {
		t.Errorf("group %d, mode %v", have, st.Mode())
	}
}

// TestListenForTheGroupOfRoot: its number, 0, is a group like others. Otherwise those of the folder's, or of the daemon's own, could connect instead.
func TestListenForTheGroupOfRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: files cannot be given to another group")
	}
	dir := t.TempDir()
	noErr(t, os.Chown(dir, -1, 12345))
	noErr(t, os.Chmod(dir, 0o755|os.ModeSetgid))
	path := filepath.Join(dir, "s.sock")
	l, err := ListenSeqpacket(path, ListenOptions{Mode: 0o660, GID: new(0)})
	noErr(t, err)
	defer l.Close()
	st, err := os.Stat(path)
	noErr(t, err)
	if have := st.Sys().(*syscall.Stat_t).Gid; have != 0 {
		t.Errorf("group %d, want 0", have)
	}
}
