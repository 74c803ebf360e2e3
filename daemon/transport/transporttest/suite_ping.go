package transporttest

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transport"
)

// pings: workers that rest answer, and so do those that have moved something since the last ping.
func pings(t *testing.T, p *Pair) {
	h := p.begin(t, Blocks(t, 24, 64<<10, 0))
	ask := func(when string) {
		t.Helper()
		for _, end := range []transport.Transport{p.Src, p.Dst} {
			if err := end.Ping(t.Context()); err != nil {
				t.Errorf("%s: %s: %v", when, end.Name(), err)
			}
		}
	}
	ask("before anything")
	h.src.Fill(1)
	h.expect()
	h.postAll()
	h.landAll()
	ask("after a segment")
	h.fence()
}
