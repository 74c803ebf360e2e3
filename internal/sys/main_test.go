package sys

import (
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// noErr ends the test when err is not nil.
func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// memfd makes a memfd that the test closes.
func memfd(t *testing.T, size int64, opt MemfdOptions) int {
	t.Helper()
	fd, err := MemfdCreate("sys-test", size, opt)
	noErr(t, err)
	t.Cleanup(func() { _ = Close(fd) })
	return fd
}
