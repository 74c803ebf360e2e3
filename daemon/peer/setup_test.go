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

// lastsWithoutLinks has a dial b through a proxy that lets the channel alone pass, and sees that neither side gives it up for so long. It returns
// both ends.
func lastsWithoutLinks(t *testing.T, a, b *node, refused bool, long time.Duration) (ca, cb *channel) {
	t.Helper()
	p := newProxy(t, b.addr)
	a.Reload(map[string]string{"b": p.addr}, nil)
	p.first(refused)
	a.Dial("b")
	at, bt := wait[transfer.PeerUp](a, nil), wait[transfer.PeerUp](b, nil)
	if at.Epoch != bt.Epoch {
		t.Fatalf("epochs %d and %d", at.Epoch, bt.Epoch)
	}
	ca, cb = a.channelOf("b"), b.channelOf("a")
	if ca == nil || cb == nil {
		t.Fatal("the channel is over")
	}
	more := time.NewTimer(long)
	defer more.Stop()
	select {
	case <-ca.ctx.Done():
		t.Error("a gave the channel up")
	case <-cb.ctx.Done():
		t.Error("b gave the channel up")
	case <-more.C:
	}
	return ca, cb
}

// TestLinksThatDoNotOpen: a channel whose links are refused, or never answered, is up soon, and stays: each side hears the other in time.
func TestLinksThatDoNotOpen(t *testing.T) {
	const beat = 200 * time.Millisecond
	for name, refused := range map[string]bool{"refused": true, "never answered": false} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t)
			beats := func(c *Config) { c.Heartbeat = beat }
			a, b := cl.node("a", beats), cl.node("b", beats)
			ca, cb := lastsWithoutLinks(t, a, b, refused, (silences+1)*beat) // longer than either side would bear
			if n := ca.links.count() + cb.links.count(); n != 0 {
				t.Errorf("%d links have opened", n)
			}
		})
	}
}

// TestLinksThatDoNotOpenBetweenUnlikeNodes: nor does a node give a channel up because the other one, whose heartbeats are further apart,
// waits longer for the links.
func TestLinksThatDoNotOpenBetweenUnlikeNodes(t *testing.T) {
	const fast, slow = 100 * time.Millisecond, 10 * time.Second
	for name, beats := range map[string][2]time.Duration{"the dialer is patient": {slow, fast}, "the other one is": {fast, slow}} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t)
			a, b := cl.node("a", func(c *Config) { c.Heartbeat = beats[0] }), cl.node("b", func(c *Config) { c.Heartbeat = beats[1] })
			lastsWithoutLinks(t, a, b, false, (silences+1)*fast) // longer than the hastier side would bear
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
