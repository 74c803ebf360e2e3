package session_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/session"
)

// TestMaxMapped: regions leave the daemon half of what it may map, by this node's setting where that can be read.
func TestMaxMapped(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "sys/vm/max_map_count")
	noErr(t, os.MkdirAll(filepath.Dir(file), 0o755))
	for _, c := range []struct {
		setting string
		want    int
	}{{"262144\n", 131072}, {"no number\n", 32765}, {"0\n", 1}} {
		noErr(t, os.WriteFile(file, []byte(c.setting), 0o600))
		if n := session.MaxMapped(root); n != c.want {
			t.Errorf("with %q %d regions may be mapped, want %d", c.setting, n, c.want)
		}
	}
	if n := session.MaxMapped(t.TempDir()); n != 32765 {
		t.Errorf("where the setting is not shown %d regions may be mapped, want 32765", n)
	}
}
