package transfer

import "testing"

// TestWindow: what is posted counts in slices and in bytes; within the node there are several windows, to a peer there is one; and a
// slice that is larger than all of it goes alone.
func TestWindow(t *testing.T) {
	random := func() uint64 { return 1 }
	m := New(Config{Node: "a", Random: random, WindowSlices: 4, WindowBytes: 100, WindowsHere: 3})
	for _, tc := range []struct {
		name   string
		peer   string
		slices int
		bytes  uint64
		room   bool
	}{
		{"to a peer", "b", 3, 99, true},
		{"to a peer, all slices", "b", 4, 4, false},
		{"to a peer, all bytes", "b", 1, 100, false},
		{"to a peer, a large one", "b", 0, 0, true},
		{"here", "", 11, 299, true},
		{"here, all slices", "", 12, 12, false},
		{"here, all bytes", "", 3, 300, false},
	} {
		l := lane{key: laneKey{peer: tc.peer}, slices: tc.slices, bytes: tc.bytes}
		if got := l.room(m); got != tc.room {
			t.Errorf("%s: room for one more: %v, want %v", tc.name, got, tc.room)
		}
	}
	if one := New(Config{Node: "a", Random: random}).cfg.WindowsHere; one != 1 {
		t.Errorf("%d windows within the node when nothing is said, want 1", one)
	}
}
