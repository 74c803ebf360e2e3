package tcp

import (
	"testing"
	"time"
)

// TestRate: whatever the order in which links count, the average stays near what was sent.
func TestRate(t *testing.T) {
	const slice = 8 << 20
	at := time.Unix(1, 0)
	for name, c := range map[string]struct {
		gaps []time.Duration // between what is counted; the links stop after the last one
	}{
		"even":                       {[]time.Duration{4e6, 4e6, 4e6, 4e6, 4e6, 4e6}},
		"two links at once":          {[]time.Duration{8e6, 1e3, 8e6, 1e3, 8e6, 1e3}},
		"the last one just after":    {[]time.Duration{12e6, 1e3, 12e6, 1e3, 0, 0}},
		"all of it in a short while": {[]time.Duration{4e6}},
	} {
		var r rate
		for range 20 {
			r.begin(at)
			began, sent := at, 0
			for _, g := range c.gaps {
				at = at.Add(g)
				r.add(at, slice)
				sent += slice
			}
			r.pause(at)
			want := float64(sent) / at.Sub(began).Seconds()
			if r.avg > 2*want {
				t.Fatalf("%s: average %.2f GB/s, sent were %.2f", name, r.avg/1e9, want/1e9)
			}
		}
		if r.avg == 0 {
			t.Errorf("%s: nothing was measured", name)
		}
	}
}
