package admintest

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

// Serve answers for src until the test ends, and returns the path of its socket.
func Serve(t testing.TB, src admin.Source) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kva") // a test's own folder can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := admin.New(src, nil)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), <-done); err != nil {
			t.Errorf("serve: %v", err)
		}
		_ = os.RemoveAll(dir)
	})
	return path
}
