package lists

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// The C programs move the same lists: their digests are those that `ref-memcpy --digest` prints, built here from a copy of its sources,
// whose changes go sees when it reads them.
func TestSameAsC(t *testing.T) {
	dir, sources := t.TempDir(), filepath.Join(t.TempDir(), "ref")
	if err := os.CopyFS(sources, os.DirFS("../ref")); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "ref-memcpy")
	if out, err := exec.Command("make", "-C", sources, "BIN="+dir, "OBJ="+dir, program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		seed     uint64
		pool, n  int
		src, dst uint64
	}{
		{1, 16384, 16384, 0x6c968555fef0f31c, 0x669e8f0c98848c8b},
		{1, 40960, 40960, 0xec6e0ccc3fc41952, 0xb0bd2bc7d896c68d},
		{7, 8, 5, 0x7895264a4e76383b, 0x60a2e17b2003aa8f},
	} {
		if got := Digest(Draw(c.seed, c.pool, c.n)); got != c.src {
			t.Errorf("source of seed %d, %d of %d: %016x, want %016x", c.seed, c.n, c.pool, got, c.src)
		}
		if got := Digest(Draw(c.seed+Dst, c.pool, c.n)); got != c.dst {
			t.Errorf("destination of seed %d, %d of %d: %016x, want %016x", c.seed, c.n, c.pool, got, c.dst)
		}
		got, err := exec.Command(program, "--digest", "--seed", fmt.Sprint(c.seed), "--pool", fmt.Sprint(c.pool), "--blocks", fmt.Sprint(c.n)).CombinedOutput()
		if want := fmt.Sprintf("{\"src\":\"%016x\",\"dst\":\"%016x\"}\n", c.src, c.dst); err != nil || string(got) != want {
			t.Errorf("C's lists of seed %d, %d of %d: %s, error %v, want %s", c.seed, c.n, c.pool, got, err, want)
		}
	}
}

func TestDrawIsPermutation(t *testing.T) {
	ids := Draw(3, 1000, 1000)
	slices.Sort(ids)
	for i, id := range ids {
		if int(id) != i {
			t.Fatalf("block %d is missing or there twice", i)
		}
	}
}
