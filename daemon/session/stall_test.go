package session

import (
	"testing"
	"time"
)

// TestStall: a watch that comes seconds late is spoken of, once a minute at most.
func TestStall(t *testing.T) {
	var s stall
	now := time.Now()
	for i, step := range []struct{ after, came, late time.Duration }{
		{time.Second, time.Second, 0},
		{time.Second, 2900 * time.Millisecond, 0}, // busy
		{250 * time.Millisecond, 5 * time.Second, 4750 * time.Millisecond},
		{time.Second, 9 * time.Second, 0}, // just said
		{time.Second, time.Second, 0},
		{time.Second, 52 * time.Second, 51 * time.Second},
	} {
		if d := s.expect(now, step.after); d != step.after {
			t.Errorf("step %d: comes after %v, want %v", i, d, step.after)
		}
		now = now.Add(step.came)
		if late := s.late(now); late != step.late {
			t.Errorf("step %d: %v late, want %v", i, late, step.late)
		}
	}
}
