package transfer

import "testing"

// TestLeftBehindOnce: each transfer out of what a gone sender left asks whether its memory can go; only until it was said what stays are
// its items looked at, or draining a full buffer would take the square of them.
func TestLeftBehindOnce(t *testing.T) {
	m := New(Config{Node: "a", Random: func() uint64 { return 1 }})
	s := &session{id: 1, closed: true, ops: map[uint64]*op{}}
	h := &home{bind: &bind{}}
	h.bind.by, s.lingers = s, h
	for n := range uint64(100) {
		it := &item{home: h, id: n}
		it.segs, it.owner = it.segs1[:1], it
		s.ops[n] = &it.op
	}
	h.items = len(s.ops)
	m.drained(s)
	if !s.orphaned {
		t.Fatal("nothing touches the memory, and yet it was not said what stays")
	}
	if n := testing.AllocsPerRun(10, func() { m.drained(s) }); n != 0 {
		t.Errorf("asked again it allocates %v times: it looks at the items", n)
	}
}
