package blockcopy

import (
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
	"github.com/kvpipe/kvpipe/internal/sys"
)

func TestMain(m *testing.M) { leak.Main(m) }

// eachKernel runs fn with every implementation that this machine can run.
func eachKernel(t *testing.T, fn func(t *testing.T, k kernel)) {
	for _, k := range kernels() {
		t.Run(k.String(), func(t *testing.T) { fn(t, k) })
	}
}

// shared maps a new memfd of size bytes. shrink cuts it under the mapping, as
// a hostile or dying owner would.
func shared(t testing.TB, size int) (b []byte, shrink func(to int)) {
	t.Helper()
	fd, err := sys.MemfdCreate("blockcopy-test", int64(size), sys.MemfdOptions{Prefault: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err = sys.Mmap(fd, size, sys.ProtWrite)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sys.Munmap(b); err != nil {
			t.Error(err)
		}
		if err := sys.Close(fd); err != nil {
			t.Error(err)
		}
	})
	return b, func(to int) {
		if err := sys.Truncate(fd, int64(to)); err != nil {
			t.Fatal(err)
		}
	}
}
