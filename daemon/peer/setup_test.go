package peer

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/damper"
)

// lastsWithoutLinks has a dial b through a proxy that lets the channel alone pass, and sees whether neither side gives it up for so long. It returns
// both ends.
func lastsWithoutLinks(t *testing.T, a, b *node, refused bool, long time.Duration) (ca, cb *channel, lasts bool) {
	t.Helper()
	p := newProxy(t, b.addr)
	a.Reload(map[string]string{"b": p.addr}, nil)
	p.first(refused)
	a.Dial("b")
	at, bt := wait[transfer.PeerUp](a, nil), wait[transfer.PeerUp](b, nil)
	ca, cb = a.channelOf("b"), b.channelOf("a")
	if ca == nil || cb == nil || at.Epoch != bt.Epoch {
		return ca, cb, false
	}
	more := time.NewTimer(long)
	defer more.Stop()
	select {
	case <-ca.ctx.Done():
	case <-cb.ctx.Done():
	case <-more.C:
		return ca, cb, true
	}
	return ca, cb, false
}

// withTime tries lasts with slower heartbeats each time: on a busy machine a node may be silent for as long as another bears.
func withTime(t *testing.T, beat time.Duration, lasts func(beat time.Duration) bool) {
	t.Helper()
	for end := beat << 4; !lasts(beat); beat *= 2 {
		if beat == end {
			t.Fatal("the channel is given up")
		}
	}
}

// TestLinksThatDoNotOpen: a channel whose links are refused, or never answered, is up soon, and stays: each side hears the other in time.
func TestLinksThatDoNotOpen(t *testing.T) {
	for name, refused := range map[string]bool{"refused": true, "never answered": false} {
		t.Run(name, func(t *testing.T) {
			withTime(t, 200*time.Millisecond, func(beat time.Duration) bool {
				cl := newCluster(t)
				beats := func(c *Config) { c.Heartbeat = beat }
				a, b := cl.node("a", beats), cl.node("b", beats)
				ca, cb, lasts := lastsWithoutLinks(t, a, b, refused, (silences+1)*beat) // longer than either side would bear
				if lasts && ca.links.count()+cb.links.count() != 0 {
					t.Errorf("%d and %d links have opened", ca.links.count(), cb.links.count())
				}
				return lasts
			})
		})
	}
}

// TestLinksThatDoNotOpenBetweenUnlikeNodes: nor does a node give a channel up because the other one, whose heartbeats are further apart,
// waits longer for the links.
func TestLinksThatDoNotOpenBetweenUnlikeNodes(t *testing.T) {
	const slow = 10 * time.Second
	for name, patient := range map[string]int{"the dialer is patient": 0, "the other one is": 1} {
		t.Run(name, func(t *testing.T) {
			withTime(t, 100*time.Millisecond, func(fast time.Duration) bool {
				cl := newCluster(t)
				beats := [2]time.Duration{fast, fast}
				beats[patient] = slow
				a, b := cl.node("a", func(c *Config) { c.Heartbeat = beats[0] }), cl.node("b", func(c *Config) { c.Heartbeat = beats[1] })
				_, _, lasts := lastsWithoutLinks(t, a, b, false, (silences+1)*fast) // longer than the hastier side would bear
				return lasts
			})
		})
	}
}

// TestARefusedChannelLeavesNothing: of the manager's context hangs what lives.
func TestARefusedChannelLeavesNothing(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", nil), cl.node("b", nil)
	a.knows(b)
	met(a, b)
	old := b.channelOf("a")
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	c := b.newChannel(sides{here, old.tcp, newFrames(here)}, "a", &peerpb.Hello{Incarnation: old.incarnation}, 7, nil, true)
	if err := b.install(c, 0); err == nil {
		t.Fatal("two channels of the same two daemons")
	}
	if c.ctx.Err() == nil {
		t.Error("its context is still there")
	}
}

// TestALinkThatKeepsFailingFillsNoLog: it is tried again and again, and the log has some of that.
func TestALinkThatKeepsFailingFillsNoLog(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", func(c *Config) { c.DialMax = time.Millisecond }), cl.node("b", nil)
	p := newProxy(t, b.addr)
	a.Reload(map[string]string{"b": p.addr}, nil)
	p.first(true)
	began := time.Now()
	a.Dial("b")
	const tries = 60
	for n := 0; n < tries; runtime.Gosched() {
		p.mu.Lock()
		n = p.away
		p.mu.Unlock()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if said, most := len(a.logged), 8*(1+int(time.Since(began)/damper.Gap)); said == 0 || said > most {
		t.Errorf("%d warnings of %d failures, want at most %d: %q", said, tries, most, a.logged)
	}
}
