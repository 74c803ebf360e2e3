package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDevDir: the rule of capi/path.c.
func TestDevDir(t *testing.T) {
	tmp := fmt.Sprintf("/tmp/kvpipe-%d", os.Geteuid())
	for _, c := range []struct{ xdg, want string }{
		{"/run/user/7", "/run/user/7/kvpipe"},
		{"", tmp},
		{"run/user/7", tmp}, // relative: not meant for sockets
	} {
		t.Setenv("XDG_RUNTIME_DIR", c.xdg)
		if got := DevDir(); got != c.want {
			t.Errorf("XDG_RUNTIME_DIR=%q: %s, want %s", c.xdg, got, c.want)
		}
	}
}

// ownTmp is a /tmp for this test, with the directory of this user's daemon in it.
func ownTmp(t *testing.T) (dir string) {
	t.Helper()
	was := Tmp
	t.Cleanup(func() { Tmp = was })
	Tmp = t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", "")
	if err := os.Mkdir(DevDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	return DevDir()
}

// TestADirectoryThatAnybodyCouldHaveMade: the rule of capi/path.c as well, to the mode. It is about the path, whoever named it and how deep it lies.
func TestADirectoryThatAnybodyCouldHaveMade(t *testing.T) {
	dir := ownTmp(t)
	t.Chdir(Tmp)
	last := filepath.Base(dir)
	below := []string{filepath.Join(dir, "admin.sock"), filepath.Join(dir, "a/b/admin.sock"), "/" + dir + "//admin.sock", Tmp + "/./" + last + "/admin.sock", last + "/admin.sock"}
	for mode, good := range map[os.FileMode]bool{0o700: true, 0o755: false, 0o500: false, 0o700 | os.ModeSetgid: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		for _, path := range below {
			if err := CheckPlace(path); (err == nil) != good || err != nil && !strings.Contains(err.Error(), " with mode 0700") {
				t.Errorf("mode %v: %s: %v", mode, path, err)
			}
		}
		for _, path := range []string{dir + "0/admin.sock", filepath.Join(Tmp, "kvpipe/admin.sock"), "admin.sock", dir + "/../admin.sock"} {
			if err := CheckPlace(path); err != nil {
				t.Errorf("not below, mode %v: %v", mode, err)
			}
		}
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := CheckPlace(below[0]); err != nil {
		t.Errorf("not there: %v", err)
	}
	if err := os.Symlink(t.TempDir(), dir); err != nil {
		t.Fatal(err)
	}
	if err := CheckPlace(below[0]); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("a link: %v", err)
	}
}

// TestAListenerThatIsSomebodyElse, such as one from before the directory was this user's.
func TestAListenerThatIsSomebodyElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("one user alone cannot be two: run it as root")
	}
	const nobody = 65534
	path := filepath.Join(ownTmp(t), "admin.sock")
	open, err := os.MkdirTemp("/tmp", "kvl")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(open) }()
	listen := func(as int) (*net.UnixListener, *net.UnixConn) {
		t.Helper()
		file := filepath.Join(open, fmt.Sprint(as))
		if err := errors.Join(os.Chmod(open, 0o777), syscall.Seteuid(as)); err != nil {
			t.Fatal(err)
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: file, Net: "unix"})
		if err = errors.Join(err, syscall.Seteuid(0)); err != nil {
			t.Fatal(err)
		}
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: file, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		return l, conn
	}
	for uid, want := range map[int]string{0: "", nobody: path + ": uid 65534 listens there, must be uid 0"} {
		l, conn := listen(uid)
		if err := CheckListener(path, conn); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("uid %d: %v", uid, err)
		}
		if err := CheckListener("/else/admin.sock", conn); err != nil {
			t.Errorf("elsewhere: %v", err)
		}
		_, _ = conn.Close(), l.Close()
	}
}
