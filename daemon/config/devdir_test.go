package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// TestADirectoryThatAnybodyCouldHaveMade: the rule of capi/path.c as well, to the mode.
func TestADirectoryThatAnybodyCouldHaveMade(t *testing.T) {
	tmp := t.TempDir()
	dir := filepath.Join(tmp, fmt.Sprintf("kvpipe-%d", os.Geteuid()))
	t.Setenv("XDG_RUNTIME_DIR", "")
	if _, err := findDevDir(tmp); err != nil {
		t.Errorf("not there: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for mode, good := range map[os.FileMode]bool{0o700: true, 0o755: false, 0o500: false, 0o700 | os.ModeSetgid: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if got, err := findDevDir(tmp); got != dir || (err == nil) != good || err != nil && !strings.Contains(err.Error(), " with mode 0700") {
			t.Errorf("mode %v: %s, %v", mode, got, err)
		}
		t.Setenv("XDG_RUNTIME_DIR", tmp)
		if got, err := findDevDir(tmp); got != filepath.Join(tmp, "kvpipe") || err != nil {
			t.Errorf("with a directory of the user's own, mode %v: %s, %v", mode, got, err)
		}
		t.Setenv("XDG_RUNTIME_DIR", "")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := findDevDir(tmp); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("a link: %v", err)
	}
}
