package peer

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

func TestACleanGoodbyeIsSaidAndRaisesNoWarning(t *testing.T) {
	eachMode(t, func(t *testing.T, cl *cluster, change func(*Config)) {
		for range 5 {
			a, b := cl.node("a", change), cl.node("b", change)
			a.knows(b)
			met(a, b)
			b.Close()
			down := wait[transfer.PeerDown](a, nil)
			if !strings.Contains(down.Cause.Text, `said goodbye: daemon of node "b" is shutting down`) {
				t.Errorf("%q", down.Cause.Text)
			}
			a.Close()
			a.calm()
			b.calm()
		}
	})
}

// What was sent before a goodbye arrives before it.
func TestAGoodbyeComesAfterWhatWasSent(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", nil), cl.node("b", nil)
	a.knows(b)
	epoch := met(a, b)
	const n = 200
	for i := range n {
		a.Send("b", epoch, &transfer.MsgResend{Xfer: transfer.XferID(i), Slices: make([]uint32, 1000)})
	}
	a.Close()
	wait[transfer.PeerDown](b, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	got := 0
	for _, ev := range b.events {
		if m, ok := ev.(transfer.PeerMsg); ok && m.Msg.(*transfer.MsgResend).Xfer == transfer.XferID(got) {
			got++
		}
	}
	if got != n {
		t.Errorf("%d of %d messages, in order, before the end", got, n)
	}
}

func TestAPeerThatRestartsQuicklyIsReachedAgain(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", nil), cl.node("b", nil)
	p := newProxy(t, b.addr)
	a.Reload(map[string]string{"b": p.addr}, nil)
	first := met(a, b)
	// Gone and back with a new incarnation at once, before this side has noticed: its own dial replaces the old channel.
	p.setDark(true)
	again := cl.node("b", func(c *Config) { c.Incarnation = 2 })
	again.knows(a)
	again.Dial("a")
	up := wait(a, func(e transfer.PeerUp) bool { return e.Epoch != first })
	wait(a, func(e transfer.PeerDown) bool { return e.Epoch == first })
	if up.Node != "b" || epochOf(a, "b") != up.Epoch {
		t.Errorf("%+v", up)
	}
	if _, st := a.Snapshot(); st.Opened != 2 || st.Reconnects != 1 {
		t.Errorf("%+v", st)
	}
	if _, stale := a.byEpoch(first); !stale {
		t.Error("a link of the old channel that was on its way is taken for a stranger's")
	}
}

// No reset, no end of stream: only the heartbeats tell.
func TestAPeerThatVanishesIsNoticedByItsSilence(t *testing.T) {
	cl := newCluster(t)
	beats := func(c *Config) { c.Heartbeat = 200 * time.Millisecond }
	a, b := cl.node("a", beats), cl.node("b", beats)
	p := newProxy(t, b.addr)
	a.Reload(map[string]string{"b": p.addr}, nil)
	a.Dial("b")
	for round := range 3 {
		first := wait(a, func(e transfer.PeerUp) bool { return len(e.Hints) > 0 })
		wait(b, func(e transfer.PeerUp) bool { return e.Epoch == first.Epoch })
		p.setDark(true)
		for _, n := range []*node{a, b} {
			down := wait(n, func(e transfer.PeerDown) bool { return e.Epoch == first.Epoch })
			if !strings.Contains(down.Cause.Text, "silent for") {
				t.Errorf("round %d, %s: %q", round, n.cfg.Node, down.Cause.Text)
			}
		}
		p.cut()
		p.setDark(false)
		a.Dial("b") // and it heals
		a.until(func() bool { return a.channelOf("b") != nil })
	}
}

func TestALivelyPeerIsNotMistakenForASilentOne(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", func(c *Config) { c.Heartbeat = 5 * time.Millisecond }), cl.node("b", func(c *Config) { c.Heartbeat = time.Hour })
	a.knows(b)
	met(a, b)
	// a alone sends heartbeats; ten answers are many silences' worth.
	last := int64(0)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for n := 0; n < 10; <-look.C {
		c := a.channelOf("b")
		if c == nil {
			break // slow machine: noticed as silent, which is what the other test is about
		}
		if h := c.heard.Load(); h != last {
			last, n = h, n+1
		}
	}
	if all, _ := a.Snapshot(); len(all) == 1 && all[0].State == "up" && all[0].RTT <= 0 {
		t.Errorf("no round trip measured: %+v", all)
	}
}

func TestAChannelThatNobodyUsesIsClosedAndOpensAgain(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", func(c *Config) { c.IdleClose, c.Heartbeat = time.Millisecond, time.Second })
	b := cl.node("b", func(c *Config) { c.IdleClose = time.Millisecond })
	a.knows(b)
	for range 2 {
		first := met(a, b)
		down := wait(a, func(e transfer.PeerDown) bool { return e.Epoch == first })
		theirs := wait(b, func(e transfer.PeerDown) bool { return e.Epoch == first })
		if !strings.Contains(down.Cause.Text, "idle for") || !strings.Contains(theirs.Cause.Text, "idle for") {
			t.Errorf("%q, %q", down.Cause.Text, theirs.Cause.Text)
		}
	}
	a.calm()
	b.calm()
}

// What is under way is no message: bytes move over links, and engines wait for each other. And what is asked about may begin just after
// the answer.
func TestAChannelWithSomethingUnderWayIsNotIdle(t *testing.T) {
	type question struct {
		node  string
		epoch uint64
	}
	for name, used := range map[string]func(a *node, q question) (busy bool){
		"busy": func(*node, question) bool { return true },
		"about to be": func(a *node, q question) bool {
			a.Send(q.node, q.epoch, &transfer.MsgGo{Xfer: 1})
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t)
			var asked []question // by one channel at a time
			var a *node
			a = cl.node("a", func(c *Config) {
				c.IdleClose, c.Heartbeat = time.Millisecond, 100*time.Millisecond
				c.Busy = func(_ context.Context, node string) bool {
					q := question{node, epochOf(a, node)}
					asked = append(asked, q)
					return len(asked) <= 3 && used(a, q)
				}
			})
			b := cl.node("b", nil)
			a.knows(b)
			for {
				epoch := met(a, b)
				down := wait(a, func(e transfer.PeerDown) bool { return e.Epoch == epoch })
				if strings.Contains(down.Cause.Text, "silent for") { // slow machine: what the other tests are about
					asked = nil
					continue
				}
				q := question{"b", epoch}
				if want := []question{q, q, q, q}; !slices.Equal(asked, want) || !strings.Contains(down.Cause.Text, "idle for") {
					t.Errorf("asked %v, want %v, then: %q", asked, want, down.Cause.Text)
				}
				return
			}
		})
	}
}

// A peer that is down costs its dialers a pause that grows and is never quite the same.
func TestAttemptsAreSpreadOut(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", func(c *Config) { c.DialMax = time.Second })
	a.Manager.mu.Lock()
	defer a.Manager.mu.Unlock()
	seen := map[time.Duration]bool{}
	for i, most := range []int{50, 100, 200, 400, 800, 1000, 1000} {
		before := time.Now()
		a.slower(target{addr: "x"}, errNobody)
		longest, pause := time.Duration(most)*time.Millisecond, a.pace["x"].until.Sub(before)
		if pause < longest/2 || pause > longest+time.Since(before) {
			t.Errorf("attempt %d: pause of %s, want %s to %s", i, pause, longest/2, longest)
		}
		seen[pause] = true
	}
	if len(seen) < 5 {
		t.Error("no jitter")
	}
}

// Nor is a peer dialed in a tight loop that lets a channel open and ends it at once. One that lasts clears its address.
func TestAChannelThatEndsAtOnceIsAFailureOfItsAddress(t *testing.T) {
	cl := newCluster(t)
	id := cl.identity("b")
	hangsUp := rawListener(t, func(conn net.Conn) {
		s := tls.Server(conn, id.Config(alpnControl))
		if _, err := readHello(newFrames(s)); err != nil {
			return
		}
		b, _ := appendHello(nil, &peerpb.Hello{ProtoMin: 1, ProtoMax: 1, Node: "b", Epoch: 1, LinkSecret: secret32})
		_, _ = s.Write(b)
	})
	a := cl.node("a", func(c *Config) { c.DialMax, c.young = time.Second, time.Hour })
	a.Reload(map[string]string{"b": hangsUp}, nil)
	paused := func() (d time.Duration) {
		a.Manager.mu.Lock()
		defer a.Manager.mu.Unlock()
		if p := a.pace[hangsUp]; p != nil {
			d = p.wait
		}
		return d
	}
	dials := 0
	dial := func() {
		a.Dial("b")
		wait[transfer.PeerDown](a, nil)
		dials++
		a.until(func() bool { // the attempt is over: what is asked before joins it
			answers := 0
			for _, ev := range a.events {
				up, ok := ev.(transfer.PeerUp)
				if _, failed := ev.(transfer.DialFailed); failed || ok && len(up.Hints) > 0 {
					answers++
				}
			}
			return answers == dials
		})
	}
	for i := range 3 {
		dial()
		if got, want := paused(), firstWait<<(i+1); got != want {
			t.Errorf("a pause of %s after %d channels that ended at once, want %s", got, i+1, want)
		}
	}
	if all, _ := a.Snapshot(); len(all) != 1 || !strings.Contains(all[0].Problem, "closed by the peer") {
		t.Errorf("%+v", all)
	}
	a.Manager.mu.Lock()
	a.cfg.young = 0
	a.Manager.mu.Unlock()
	dial()
	if got := paused(); got != 0 {
		t.Errorf("a pause of %s after a channel that lasted", got)
	}
}

// What somebody has to mend is a warning, once for all attempts; a peer that is merely away, and what a client asked for, are none.
func TestAttemptsThatFailAreLoggedOnce(t *testing.T) {
	a := newCluster(t).node("a", nil)
	wrong := final(transfer.Denied, "another CA")
	a.Manager.mu.Lock()
	for range 3 {
		a.slower(target{addr: "x", node: "b"}, wrong)
		a.slower(target{addr: "y", node: "c"}, errNobody)
		a.slower(target{addr: "z"}, wrong)
	}
	a.Manager.mu.Unlock()
	if want := []string{"peer cannot be reached peer=b address=x error=another CA"}; !slices.Equal(a.logged, want) {
		t.Errorf("logged %q, want %q", a.logged, want)
	}
}

// A failure that takes the place of another within a minute is told after it: it is what somebody has to mend.
func TestAnotherFailureIsLoggedInItsTime(t *testing.T) {
	a := newCluster(t).node("a", nil)
	b := target{addr: "x", node: "b"}
	a.Manager.mu.Lock()
	a.slower(b, final(transfer.Denied, "this CA"))
	for range 3 {
		a.slower(b, final(transfer.Denied, "another CA"))
		a.pace["x"].told = a.pace["x"].told.Add(-tellAgain / 2)
	}
	for range 3 {
		a.slower(b, final(transfer.Denied, "another CA"))
		a.pace["x"].told = a.pace["x"].told.Add(-tellAgain)
	}
	a.Manager.mu.Unlock()
	if want := []string{"peer cannot be reached peer=b address=x error=this CA", "peer cannot be reached peer=b address=x error=another CA"}; !slices.Equal(a.logged, want) {
		t.Errorf("logged %q, want %q", a.logged, want)
	}
}

func TestAPeerThatIsDownSaysWhyAndComesBack(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", nil), cl.node("b", nil)
	a.knows(b)
	b.Close()
	for range 3 {
		a.Dial("b")
		ev := wait[transfer.DialFailed](a, nil)
		if ev.Final || ev.Cause.Reason != transfer.PeerGone || !strings.Contains(ev.Cause.Text, "refused") {
			t.Errorf("%+v", ev)
		}
	}
	if all, _ := a.Snapshot(); len(all) != 1 || all[0].State != "down" || !strings.Contains(all[0].Problem, "refused") {
		t.Errorf("%+v", all)
	}
	again := cl.node("b", nil)
	a.knows(again)
	met(a, again)
}

// TestWhoCameByItselfIsReachedAgain: what this node had failed at before is no problem of a peer that dialed meanwhile, and went.
func TestWhoCameByItselfIsReachedAgain(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", nil), cl.node("b", nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	a.Reload(map[string]string{"b": l.Addr().String()}, nil)
	a.Dial("b")
	wait[transfer.DialFailed](a, nil)
	b.knows(a)
	met(b, a)
	b.Close()
	wait[transfer.PeerDown](a, nil)
	if all, _ := a.Snapshot(); len(all) != 1 || all[0].Problem != "" {
		t.Errorf("%+v", all)
	}
}

// Three that dial each other, again and again, end with one channel for each pair, which both sides agree on.
func TestATriangleOfDialersAgrees(t *testing.T) {
	cl := newCluster(t)
	var all []*node
	addrs := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		n := cl.node(name, nil)
		all, addrs[name] = append(all, n), n.addr
	}
	for _, n := range all {
		n.Reload(addrs, nil)
	}
	for range 5 {
		for _, n := range all {
			for _, o := range all {
				if n != o {
					go n.Dial(o.cfg.Node)
				}
			}
		}
		for i, n := range all {
			for _, o := range all[i+1:] {
				agree(t, n, o)
			}
		}
		for _, n := range all {
			for _, c := range n.all() {
				c.close(transfer.Cause{Reason: transfer.PeerGone, Text: "test"}, true)
			}
		}
	}
}

// agree waits until both have the same channel with each other, and it works.
func agree(t *testing.T, a, b *node) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for epochOf(a, b.cfg.Node) == 0 || epochOf(a, b.cfg.Node) != epochOf(b, a.cfg.Node) {
		if time.Now().After(deadline) {
			t.Fatalf("%s and %s do not agree", a.cfg.Node, b.cfg.Node)
		}
		a.Dial(b.cfg.Node)
		wait(a, func(e transfer.PeerUp) bool { return e.Node == b.cfg.Node && len(e.Hints) > 0 })
	}
}

// A thousand channels come and go; the leak gate says whether all of each is given back.
func TestChannelsThatComeAndGoLeaveNothing(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", func(c *Config) { c.Insecure = true }), cl.node("b", func(c *Config) { c.Insecure = true })
	a.knows(b)
	cycles := 1000
	if testing.Short() {
		cycles = 50
	}
	for i := range cycles {
		epoch := met(a, b)
		closer := []*node{a, b}[i%2]
		closer.channelOf([]string{"b", "a"}[i%2]).close(transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprint("cycle ", i)}, i%3 != 0)
		for _, n := range []*node{a, b} {
			wait(n, func(e transfer.PeerDown) bool { return e.Epoch == epoch })
		}
		for _, n := range []*node{a, b} {
			n.mu.Lock()
			n.events, n.links = nil, nil
			n.mu.Unlock()
		}
	}
	for _, n := range []*node{a, b} {
		n.Manager.mu.Lock()
		if len(n.channels) != 0 || len(n.dialing) != 0 || len(n.lost) != 1 {
			t.Errorf("%s keeps %d channels, %d dials, %d lost", n.cfg.Node, len(n.channels), len(n.dialing), len(n.lost))
		}
		n.Manager.mu.Unlock()
	}
}
