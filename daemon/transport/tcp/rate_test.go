package tcp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
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

// TestAFencedQueueIsNoWork: what waited for a link that did not come, and was fenced, does not make the next hand-over look slow.
func TestAFencedQueueIsNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New(Config{Sink: transporttest.NewRecorder()})
		defer tr.Close()
		s := newOutflow(t, 1, 64<<10, 2)
		s.post(tr)
		tr.mu.Lock()
		ch := tr.channel(channelKey{"a", epoch})
		tr.mu.Unlock()
		ch.expect()
		// A link takes one of the two slices and is lost with it.
		tk := ch.take(&link{}, func() {})
		time.Sleep(sampleTime)
		tk.End(transfer.Cause{Reason: transfer.PeerGone, Text: "data link lost"})
		ch.done([]*task{tk}, 32<<20)
		_, before := ch.gbps()
		tr.Fence(s.leg)
		time.Sleep(time.Hour)
		s = newOutflow(t, 2, 64<<10, 1)
		s.post(tr)
		tk = ch.take(&link{}, func() {})
		time.Sleep(sampleTime)
		tk.End(transfer.Cause{})
		ch.done([]*task{tk}, 32<<20)
		if _, after := ch.gbps(); before == 0 || after < 0.99*before {
			t.Errorf("%.2f GB/s after a second hand-over as fast as the first, of %.2f", after, before)
		}
	})
}
