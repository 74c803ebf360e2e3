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
	beats := func(cfg *Config) { cfg.Heartbeat = 100 * time.Millisecond }
	waitsWithThePeer(t, &transfer.MsgGo{Xfer: 1}, maxBehind, beats, func(at, to *channel) {
		for beats := 0; beats < 2*silences && !to.ended.Load(); beats++ { // of b, at a
			for last := to.heard.Load(); to.heard.Load() == last && !to.ended.Load(); {
				runtime.Gosched()
			}
		}
	})
}

// TestLessWaitsOfWhatTakesLong: others' takes come between those of a peer that asks for thousands.
func TestLessWaitsOfWhatTakesLong(t *testing.T) {
	for _, msg := range samples() {
		switch msg.(type) {
		case *transfer.MsgTake, *transfer.MsgGrant, *transfer.MsgSeek:
			waitsWithThePeer(t, msg, 16, patient, func(_, _ *channel) {})
		}
	}
}

// waitsWithThePeer has node a say msg to node b, whose machine stands still until meanwhile has returned: twice most of them wait there. A
// machine on which one of them is silent for too long tries again, with more time.
func waitsWithThePeer(t *testing.T, msg transfer.Msg, most int64, change func(*Config), meanwhile func(at, to *channel)) {
	t.Helper()
	for tries := 0; !waited(t, msg, most, func(cfg *Config) { change(cfg); cfg.Heartbeat <<= min(tries, 4) }, meanwhile); tries++ {
		if tries == 10 {
			t.Fatal("the channel has ended")
		}
	}
}

// waited is one try of waitsWithThePeer. False: the channel has ended.
func waited(t *testing.T, msg transfer.Msg, most int64, change func(*Config), meanwhile func(at, to *channel)) bool {
	t.Helper()
	all := 5 * most
	var mu sync.Mutex
	var marks []func()
	free := false
	var came atomic.Int64
	c := newCluster(t)
	a := c.node("a", change)
	b := c.node("b", func(cfg *Config) {
		change(cfg)
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
	if at == nil || to == nil {
		return false
	}
	ended := func() bool { return at.ended.Load() || to.ended.Load() }
	for range all {
		a.Send("b", epoch, msg)
	}
	for !at.behind.Load() && !ended() {
		runtime.Gosched()
	}
	if !ended() {
		meanwhile(at, to)
	}
	if n := came.Load(); n != 2*most && !ended() {
		t.Errorf("%d messages %T wait for the machine, want %d", n, msg, 2*most)
	}
	mu.Lock()
	free = true
	for _, mark := range marks {
		mark()
	}
	mu.Unlock()
	for (came.Load() < all || at.behind.Load()) && !ended() { // a peer's silence counts again
		runtime.Gosched()
	}
	return !ended() && epochOf(b, "a") == epoch
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

// TestAPeerIsNotSilentWhileTheMachineRuns on the channel's own reader, however long that takes. Where it was silent for too long before, another
// is tried.
func TestAPeerIsNotSilentWhileTheMachineRuns(t *testing.T) {
	for tries := 0; ; tries++ {
		if ran, lasted := runsLong(t, 100*time.Millisecond<<min(tries, 4)); ran && lasted {
			return
		} else if ran || tries == 10 {
			t.Fatal("the channel has ended")
		}
	}
}

// runsLong has a machine run for longer than a peer may be silent, unless the channel ends before, and says whether it lasted.
func runsLong(t *testing.T, beat time.Duration) (ran, lasted bool) {
	t.Helper()
	c := newCluster(t)
	var b *node
	var runs atomic.Bool
	over := make(chan bool, 1)
	a := c.node("a", func(cfg *Config) { cfg.Heartbeat = time.Hour })
	b = c.node("b", func(cfg *Config) {
		cfg.Heartbeat = beat
		cfg.Queue = func(transfer.Event) {}
		cfg.Flush = sync.OnceFunc(func() {
			at := b.channelOf("a")
			if at == nil || at.ended.Load() {
				return
			}
			runs.Store(true)
			for beats := 0; beats < 2*silences && !at.ended.Load(); beats++ {
				for last := at.heard.Load(); at.heard.Load() == last && !at.ended.Load(); {
					runtime.Gosched()
				}
			}
			over <- !at.ended.Load()
		})
	})
	a.knows(b)
	epoch := met(a, b)
	at := b.channelOf("a")
	if at == nil {
		return false, false
	}
	a.Send("b", epoch, &transfer.MsgGo{Xfer: 1})
	select {
	case lasted = <-over:
		return true, lasted
	case <-at.ctx.Done():
		return runs.Load(), runs.Load() && <-over
	}
}
