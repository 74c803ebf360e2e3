package transfer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type alarm struct {
	timer
	rung *[]Time
}

func (a *alarm) fire(m *Machine, _ wake) { *a.rung = append(*a.rung, m.now) }

// TestTimers arms, moves and disarms timers at random, and expects each that is left to fire once, in time and in order.
func TestTimers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New(Config{Node: "a", Random: func() uint64 { return 1 }})
		var rung []Time
		alarms := make([]alarm, 20)
		for i := range alarms {
			alarms[i].rung = &rung
		}
		armed := map[int]Time{}
		for range rapid.IntRange(0, 200).Draw(t, "changes") {
			i := rapid.IntRange(0, len(alarms)-1).Draw(t, "alarm")
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				m.disarm(&alarms[i].timer)
				delete(armed, i)
				continue
			}
			at := Time(rapid.IntRange(1, 50).Draw(t, "at"))
			m.arm(&alarms[i].timer, &alarms[i], wakeDeadline, at)
			armed[i] = at
		}
		var want []Time
		for _, at := range armed {
			want = append(want, at)
		}
		slices.Sort(want)
		for now := Time(1); now <= 50; now++ {
			m.Step(now, Tick{})
		}
		if !slices.Equal(rung, want) {
			t.Fatalf("fired at %v, want %v", rung, want)
		}
		if len(m.timers) != 0 {
			t.Fatalf("%d timers left", len(m.timers))
		}
	})
}
