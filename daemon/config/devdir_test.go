package config

import (
	"fmt"
	"os"
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
