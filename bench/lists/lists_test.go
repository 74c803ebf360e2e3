package lists

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// The numbers are what `ref-memcpy --digest` prints for the same lists.
func TestSameAsC(t *testing.T) {
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
