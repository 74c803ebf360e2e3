package driver

import (
	"slices"
	"testing"
)

// TestTurnIsHeldWhileItDrains: whoever pushes relies on the holder, also when that has come back for what came as it left, and the
// goroutine of Run is woken for what is left alone.
func TestTurnIsHeldWhileItDrains(t *testing.T) {
	for name, c := range map[string]struct {
		more   []bool // what each drain says
		empty  []bool // what each look after it sees
		drains int
		woken  bool
	}{
		"nothing comes as it leaves":   {[]bool{false}, []bool{true}, 1, false},
		"something comes as it leaves": {[]bool{false, false}, []bool{false, true}, 2, false},
		"something comes each time":    {[]bool{false, false}, []bool{false, false}, 2, true},
		"too much":                     {[]bool{true}, nil, 1, true},
		"too much the second time":     {[]bool{false, true}, []bool{false}, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			var w turn
			w.init()
			drains, looks := 0, 0
			w.take(func() bool {
				if !w.active.Load() {
					t.Errorf("drain %d: nobody would rely on it", drains)
				}
				w.nudge()
				drains++
				return c.more[drains-1]
			}, func() bool {
				if w.active.Load() {
					t.Error("what comes now would rely on a holder that does not look any more")
				}
				looks++
				return c.empty[looks-1]
			})
			if drains != c.drains || looks != len(c.empty) {
				t.Errorf("%d drains, %d looks; want %d and %d", drains, looks, c.drains, len(c.empty))
			}
			if woken := len(w.wake) > 0; woken != c.woken {
				t.Errorf("the goroutine of Run is woken: %v, want %v", woken, c.woken)
			}
		})
	}
}

// TestNoTurnAfterTheEnd: nothing is worked off any more, and nobody woken for it.
func TestNoTurnAfterTheEnd(t *testing.T) {
	var w turn
	w.init()
	w.end()
	var did []string
	w.take(func() bool { did = append(did, "drain"); return true }, func() bool { did = append(did, "look"); return false })
	if len(did) > 0 || len(w.wake) > 0 {
		t.Errorf("it did %v, woken: %d", slices.Compact(did), len(w.wake))
	}
}
