package transporttest

import (
	"context"
	"runtime"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transport"
)

// pings checks that idle workers answer, and those that have moved something since the last ping. A worker that the
// system has not let run since then is asked again, as the watchdog does.
func pings(t *testing.T, p *Pair) {
	h := p.begin(t, Blocks(t, 24, 64<<10, 0))
	ask := func(when string) {
		t.Helper()
		for _, end := range []transport.Transport{p.Src, p.Dst} {
			ctx, stop := context.WithTimeout(t.Context(), patience)
			err := end.Ping(ctx)
			for ; err != nil && ctx.Err() == nil; err = end.Ping(ctx) {
				runtime.Gosched()
			}
			if stop(); err != nil {
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
