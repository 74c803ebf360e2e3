package reuse

import (
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// same says whether two buffers are one.
func same(a, b []byte) bool { return &a[:1][0] == &b[:1][0] }

// TestReuse: what was put back is what comes next, also for somewhat fewer bytes; what is in use is not.
func TestReuse(t *testing.T) {
	var b Buffers
	one, two := b.Get(4096), b.Get(4096)
	if same(one, two) {
		t.Fatal("two users have one buffer")
	}
	b.Put(one)
	if got := b.Get(3000); !same(got, one) || len(got) != 3000 {
		t.Errorf("%d bytes, the same buffer: %v", len(got), same(got, one))
	}
	if got := b.Get(4096); same(got, one) || same(got, two) {
		t.Error("a buffer that is in use was given away")
	}
}

// TestOtherSizes: a stock of buffers that nobody needs any more makes room for those that are needed, several at a time.
func TestOtherSizes(t *testing.T) {
	var b Buffers
	for range 2 * most {
		b.Put(make([]byte, 1))
	}
	if len(b.free) != most {
		t.Errorf("%d are kept, the limit is %d", len(b.free), most)
	}
	for range 2 {
		var used [4][]byte
		for i := range used {
			used[i] = b.Get(32 << 10)
		}
		for _, p := range used {
			b.Put(p)
		}
	}
	large := 0
	for _, p := range b.free {
		if cap(p) >= 32<<10 {
			large++
		}
	}
	if large != 4 {
		t.Errorf("%d of 4 large ones are kept", large)
	}
}

// TestLittleForMuch: a few bytes do not keep a large buffer.
func TestLittleForMuch(t *testing.T) {
	var b Buffers
	for _, n := range []int{0, 1, 100, 1000, 10_000} {
		for range most {
			b.Put(make([]byte, largest))
		}
		if got := b.Get(n); len(got) != n || cap(got) > 2*n+512 {
			t.Errorf("%d of %d bytes, wanted %d", len(got), cap(got), n)
		}
	}
}

// TestNotKept: nil keeps nothing, and nothing keeps empty or very large buffers.
func TestNotKept(t *testing.T) {
	var none *Buffers
	none.Put(none.Get(10))
	var b Buffers
	b.Put(nil)
	b.Put(make([]byte, largest+1))
	if len(none.Get(10)) != 10 || len(b.free) != 0 {
		t.Errorf("%d are kept", len(b.free))
	}
}
