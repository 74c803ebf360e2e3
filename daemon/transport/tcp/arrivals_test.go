package tcp

import (
	"testing"
	"time"
)

// TestArrivals: however slices come, the average is near what comes while something does, and rests between hand-overs do not count.
func TestArrivals(t *testing.T) {
	const slice, ms = 1 << 20, time.Millisecond
	for name, c := range map[string]struct {
		links, slices int           // of each link, one after the other
		takes, waits  time.Duration // of each slice; between two of them
		rest          time.Duration // after them all
		want          float64       // GB/s
	}{
		"one link":                         {1, 40, ms, 0, time.Second, 1.05},
		"two links":                        {2, 40, ms, 0, time.Second, 2.1},
		"a sender that keeps it waiting":   {1, 40, ms, ms, time.Second, 0.52},
		"a slow network":                   {1, 10, 10 * ms, 0, time.Second, 0.105},
		"short hand-overs":                 {1, 8, ms, 0, 5 * ms, 1.05},
		"hand-overs too short to be known": {1, 3, ms, 0, 5 * ms, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var a arrivals
			at := time.Unix(1, 0)
			for range 20 {
				for range c.slices {
					for range c.links {
						a.begin(at)
					}
					at = at.Add(c.takes)
					for range c.links {
						a.add(at, slice, false)
					}
					at = at.Add(c.waits)
				}
				at = at.Add(c.rest)
			}
			a.settle(at)
			if got := a.avg / 1e9; got < 0.9*c.want || got > 1.1*c.want {
				t.Errorf("%.3f GB/s, want %.3f", got, c.want)
			}
		})
	}
}

// TestArrivalsOfAStall: a slice that is in hand is waited for, however long; what landed before it is counted meanwhile.
func TestArrivalsOfAStall(t *testing.T) {
	var a arrivals
	at := time.Unix(1, 0)
	a.begin(at)
	a.add(at.Add(time.Millisecond), 4<<20, true)
	at = at.Add(time.Second)
	a.settle(at)
	a.add(at, 4<<20, false)
	a.settle(at.Add(time.Second))
	if got := a.avg / 1e6; got < 8 || got > 9 {
		t.Errorf("8 MiB in a second are %.1f MB/s", got)
	}
}
