package peer

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAChannelIsReadNoFasterThanItIsWorkedOff: what a peer says waits with the peer while the machine is busy. It is not taken for silent
// meanwhile, and all of it comes.
func TestAChannelIsReadNoFasterThanItIsWorkedOff(t *testing.T) {
	const all = 5 * maxBehind
	var mu sync.Mutex
	var marks []func()
	free := false
	var came atomic.Int64
	c := newCluster(t)
	a := c.node("a", func(cfg *Config) { cfg.Heartbeat = 10 * time.Millisecond })
	b := c.node("b", func(cfg *Config) {
		cfg.Heartbeat = 10 * time.Millisecond
		cfg.Queue = func(transfer.Event) { came.Add(1) }
		cfg.Flush = func() {}
		cfg.After = func(mark func()) {
			mu.Lock()
			defer mu.Unlock()
			if marks = append(marks, mark); free {
				mark()
			}
		}
	})
	a.knows(b)
	epoch := met(a, b)
	at, to := b.channelOf("a"), a.channelOf("b")
	for i := range all {
		a.Send("b", epoch, &transfer.MsgGo{Xfer: transfer.XferID(i + 1)})
	}
	for !at.behind.Load() {
		runtime.Gosched()
	}
	for beats := 0; beats < 2*silences; beats++ { // of b, at a
		for last := to.heard.Load(); to.heard.Load() == last; {
			runtime.Gosched()
		}
	}
	if n := came.Load(); n != 2*maxBehind {
		t.Errorf("%d messages wait for the machine, want %d", n, 2*maxBehind)
	}
	mu.Lock()
	free = true
	for _, mark := range marks {
		mark()
	}
	mu.Unlock()
	for came.Load() < all {
		runtime.Gosched()
	}
	if at.ended.Load() || epochOf(b, "a") != epoch {
		t.Error("the channel has ended")
	}
}

// TestAChannelThatIsBehindEnds at once when it has to.
func TestAChannelThatIsBehindEnds(t *testing.T) {
	c := newCluster(t)
	a := c.node("a", patient)
	b := c.node("b", func(cfg *Config) { patient(cfg); cfg.After = func(func()) {} })
	b.onMessage(func(transfer.PeerMsg) {})
	a.knows(b)
	epoch := met(a, b)
	for i := range 3 * maxBehind {
		a.Send("b", epoch, &transfer.MsgGo{Xfer: transfer.XferID(i + 1)})
	}
	for !b.channelOf("a").behind.Load() {
		runtime.Gosched()
	}
	b.Close()
}
