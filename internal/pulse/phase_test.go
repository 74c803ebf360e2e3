package pulse

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestUntil: whoever begins when, they wake together.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period = 4 * time.Second
		woke := make(chan time.Time, 8)
		for _, d := range []time.Duration{period, period / 2, period / 4, period} {
			if in := Until(d); in <= 0 || in > d {
				t.Fatalf("Until(%v) is %v", d, in)
			}
			go func() {
				for range period / d {
					time.Sleep(Until(d))
				}
				woke <- time.Now()
			}()
			time.Sleep(7 * time.Millisecond)
		}
		time.Sleep(2 * period)
		first := <-woke
		for len(woke) > 0 {
			if gap := (<-woke).Sub(first) % (period / 4); gap != 0 {
				t.Errorf("one wakes %v after another", gap)
			}
		}
	})
}
