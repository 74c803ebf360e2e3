package local

import "testing"

// TestNoByteNoSlice: a slice that was fenced or refused before a byte of it was copied is none.
func TestNoByteNoSlice(t *testing.T) {
	var r rate
	for _, n := range []uint64{0, 7, 0} {
		r.count(n)
	}
	if b, n := r.bytes.Load(), r.slices.Load(); b != 7 || n != 1 {
		t.Errorf("%d bytes in %d slices, want 7 in 1", b, n)
	}
}
