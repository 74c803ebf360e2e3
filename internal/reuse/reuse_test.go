package reuse

import (
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// same says whether two buffers are one.
func same(a, b []byte) bool { return &a[:1][0] == &b[:1][0] }

// TestReuse: what was put back is what comes next, also for fewer bytes; what is in use is not.
func TestReuse(t *testing.T) {
	var b Buffers
	one, two := b.Get(4096), b.Get(4096)
	if same(one, two) {
		t.Fatal("two users have one buffer")
	}
	b.Put(one)
	if got := b.Get(100); !same(got, one) || len(got) != 100 {
		t.Errorf("%d bytes, the same buffer: %v", len(got), same(got, one))
	}
	if got := b.Get(100); same(got, one) || same(got, two) {
		t.Error("a buffer that is in use was given away")
	}
}

// TestTooSmall: a stock of small buffers does not keep larger ones out for ever.
func TestTooSmall(t *testing.T) {
	var b Buffers
	for range 2 * most {
		b.Put(make([]byte, 1))
	}
	if len(b.free) != most {
		t.Errorf("%d are kept, the limit is %d", len(b.free), most)
	}
	p := b.Get(4096)
	b.Put(p)
	if got := b.Get(4096); !same(got, p) {
		t.Error("the large one was not kept")
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
