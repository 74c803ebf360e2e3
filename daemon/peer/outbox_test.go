package peer

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestMuchIsSaidAtOnce: what one step of the machine has to say may be more than what may wait for a peer that does not read. A peer that
// reads gets all of it.
func TestMuchIsSaidAtOnce(t *testing.T) {
	var came atomic.Int64
	c := newCluster(t)
	a := c.node("a", nil)
	b := c.node("b", func(cfg *Config) {
		cfg.Queue = func(transfer.Event) { came.Add(1) }
		cfg.Flush = func() {}
	})
	a.knows(b)
	epoch := met(a, b)
	msg := &transfer.MsgGrant{HasInline: true, Inline: make([]byte, 64<<10)}
	all := int64((maxQueued + 16<<20) / len(msg.Inline))
	for range all {
		a.Queue("b", epoch, msg, false)
	}
	for came.Load() == 0 && epochOf(a, "b") == epoch { // so much is not left lying until Flush
		runtime.Gosched()
	}
	a.Flush()
	for came.Load() < all && epochOf(a, "b") == epoch {
		runtime.Gosched()
	}
	if n := came.Load(); n != all || epochOf(a, "b") != epoch {
		t.Errorf("%d of %d came, and the channel is %d, was %d", n, all, epochOf(a, "b"), epoch)
	}
}

// deafPeer is one that says what it likes to node a, and reads nothing.
func deafPeer(t *testing.T, change func(*Config)) (a *node, r *raw, epoch uint64) {
	t.Helper()
	c := newCluster(t)
	a = c.node("a", change)
	r = rawDial(t, a.addr, c.identity("b"), alpnControl).meet("b", nil)
	return a, r, wait[transfer.PeerUp](a, nil).Epoch
}

// large is a message of which a few are as much as may wait for a deaf peer.
var large = &transfer.MsgGrant{HasInline: true, Inline: make([]byte, maxQueued/12)}

// TestAPeerThatDoesNotReadIsGivenUp, though its heartbeats say that it lives: it costs its channel, not this node's memory.
func TestAPeerThatDoesNotReadIsGivenUp(t *testing.T) {
	a, r, epoch := deafPeer(t, func(cfg *Config) { cfg.Heartbeat, cfg.unheard = time.Second, time.Millisecond })
	lives := r.beats(epoch)
	for at := a.channelOf("b"); !at.ended.Load(); runtime.Gosched() {
		if at.waiting() <= maxQueued {
			a.Send("b", epoch, large)
		}
	}
	down := wait[transfer.PeerDown](a, nil)
	if down.Epoch != epoch || !strings.Contains(down.Cause.Text, "does not read") {
		t.Errorf("%+v", down)
	}
	_ = r.conn.Close()
	<-lives
}

// beats has the peer send heartbeats until its connection ends.
func (r *raw) beats(epoch uint64) (over chan struct{}) {
	over = make(chan struct{})
	go func() {
		defer close(over)
		for seq := uint64(1); ; seq++ {
			b, err := appendHeartbeat(nil, epoch, seq, false)
			if err == nil {
				_, err = r.conn.Write(b)
			}
			if err != nil {
				return
			}
			runtime.Gosched()
		}
	}()
	return over
}

// TestASenderIsNotHeldUpForLong: a kernel may take less than it says, from a peer that takes packets as it likes, or by the system's
// net.ipv4.tcp_notsent_lowat. Whoever sends must not wait, so a peer for which it does loses its channel.
func TestASenderIsNotHeldUpForLong(t *testing.T) {
	a, r, epoch := deafPeer(t, func(cfg *Config) { cfg.Heartbeat, cfg.unheard = 200*time.Millisecond, time.Second })
	lives := r.beats(epoch)
	at := a.channelOf("b")
	if err := sys.Control(at.tcp, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, 1) }); err != nil {
		t.Fatal(err)
	}
	rescue := time.AfterFunc(patience, func() {
		t.Error("a Send waits for a peer that does not read")
		at.tcp.Close()
	})
	for !at.ended.Load() && at.waiting() <= maxQueued {
		a.Send("b", epoch, &transfer.MsgGrant{HasInline: true, Inline: make([]byte, 16<<10)})
	}
	rescue.Stop()
	if down := wait[transfer.PeerDown](a, nil); !strings.Contains(down.Cause.Text, "does not read") {
		t.Errorf("%+v", down)
	}
	_ = r.conn.Close()
	<-lives
}

// TestAWriteThatWaitsEndsAnIdleChannelToo: whether it is in use is asked of whoever writes, and who waits cannot answer.
func TestAWriteThatWaitsEndsAnIdleChannelToo(t *testing.T) {
	cl := newCluster(t)
	b := cl.node("b", func(c *Config) { c.Heartbeat = time.Hour })
	a := cl.node("a", func(c *Config) {
		c.Heartbeat, c.IdleClose = 100*time.Millisecond, 1
		c.Busy = func(ctx context.Context, _ string) bool {
			<-ctx.Done()
			return true
		}
	})
	a.knows(b)
	met(a, b)
	c := a.channelOf("b")
	c.heard.Store(c.m.clock() + int64(time.Hour)) // the peer's silence is not the question
	c.hasty.Add(1)
	if down := wait[transfer.PeerDown](a, nil); !strings.Contains(down.Cause.Text, "does not read") {
		t.Errorf("%+v", down)
	}
}

// TestAWriteDoesNotWaitForItsPeerWhileItsNodeStandsStill: a process that stands still for long in the middle of one keeps its channel.
func TestAWriteDoesNotWaitForItsPeerWhileItsNodeStandsStill(t *testing.T) {
	const beat = 100 * time.Millisecond
	var at atomic.Pointer[channel]
	beats, over := 0, make(chan struct{})
	cl := newCluster(t)
	b := cl.node("b", func(c *Config) { c.Heartbeat = time.Hour })
	a := cl.node("a", func(c *Config) {
		c.Heartbeat, c.IdleClose = beat, 1
		c.Busy = func(context.Context, string) bool { // each beat asks
			c := at.Load()
			if c == nil {
				return true
			}
			switch beats++; beats {
			case 1:
				c.heard.Store(c.m.clock() + int64(time.Hour)) // the peer's silence is not the question
				c.hasty.Add(1)
				for until := c.m.clock() + int64(3*beat); c.m.clock() < until; {
					runtime.Gosched()
				}
			case 3: // the first one after that
				c.hasty.Add(1)
			case 4:
				close(over)
			}
			return true
		}
	})
	a.knows(b)
	met(a, b)
	c := a.channelOf("b")
	at.Store(c)
	select {
	case <-over:
	case <-c.ctx.Done():
		t.Error("the channel is closed")
	}
}

// TestWhoReadsNoAnswersIsNotHeard: the answers to what such a peer asks for do not pile up; once it reads, all is answered.
func TestWhoReadsNoAnswersIsNotHeard(t *testing.T) {
	a, r, epoch := deafPeer(t, func(cfg *Config) { cfg.Heartbeat = time.Hour })
	const all, round = 40, maxBehind / planned
	var heard atomic.Int64
	a.onMessage(func(ev transfer.PeerMsg) {
		heard.Add(1)
		a.Send(ev.Node, ev.Epoch, large)
	})
	ask := samples()[slices.IndexFunc(samples(), func(m transfer.Msg) bool { return kindOf(m) == kindSeek })]
	for range all {
		r.write(must(appendMsg(nil, epoch, ask, false)))
	}
	at := a.channelOf("b")
	for !at.behind.Load() && !at.ended.Load() {
		runtime.Gosched()
	}
	if n := heard.Load(); n > 2*round {
		t.Errorf("%d requests were heard of a peer that reads no answers, want %d at most", n, 2*round)
	}
	for answers := 0; answers < all; {
		f, err := r.in.next(maxFrame)
		if err != nil {
			t.Fatalf("after %d answers: %v", answers, err)
		}
		if f.kind == kindGrant {
			answers++
		}
	}
	for at.behind.Load() && !at.ended.Load() { // or its silence would never be noticed
		runtime.Gosched()
	}
	if at.ended.Load() {
		t.Error("the channel has ended")
	}
}

// TestWhoSendsLittleIsNotHeldUp by a peer that does not read: what the kernel has no room for is left to the writer.
func TestWhoSendsLittleIsNotHeldUp(t *testing.T) {
	a, _, epoch := deafPeer(t, func(cfg *Config) { cfg.Heartbeat = time.Hour })
	at := a.channelOf("b")
	defer time.AfterFunc(time.Minute, func() { at.tcp.Close() }).Stop() // a Send that is held up returns then
	for at.waiting() < 1<<20 && !at.ended.Load() {
		a.Send("b", epoch, &transfer.MsgGrant{HasInline: true, Inline: make([]byte, 16<<10)})
	}
	if at.ended.Load() {
		t.Error("the channel has ended")
	}
}

// TestManySmallMessagesHoldNobodyUp: each that is on its way takes far more of the kernel's room than it has bytes. The way is one of small
// packets, many of which may be on it at once, and then nothing arrives any more. The node has the room that systems give by default.
func TestManySmallMessagesHoldNobodyUp(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", func(c *Config) { c.Streams, c.Heartbeat = 0, time.Hour })
	small := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 600) })
	}}
	conn, err := small.Dial("tcp", a.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	secured := tls.Client(conn, cl.identity("b").Config(alpnControl))
	r := (&raw{t: t, conn: secured, in: newFrames(secured)}).meet("b", nil)
	epoch := wait[transfer.PeerUp](a, nil).Epoch
	at := a.channelOf("b")
	_ = at.tcp.SetWriteBuffer(212992)
	const much = 512
	for range much { // the way proves to be a wide one
		a.Send("b", epoch, &transfer.MsgGrant{HasInline: true, Inline: make([]byte, 64<<10)})
	}
	for range much {
		if f, err := r.in.next(maxFrame); err != nil || f.kind != kindGrant {
			t.Fatal(f.kind, err)
		}
	}
	for at.waiting() > 0 {
		runtime.Gosched()
	}
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	if err := sys.Control(conn.(*net.TCPConn), func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing})
	}); err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range 4096 {
			a.Send("b", epoch, &transfer.MsgGo{Xfer: transfer.XferID(i + 1)})
		}
	}()
	select {
	case <-sent:
	case <-time.After(patience):
		t.Error("a Send waits for a peer that acknowledges nothing")
		_ = at.tcp.Close()
		<-sent
	}
}

// TestWhatIsBeingWrittenWaits for the peer as well, until the kernel has taken it.
func TestWhatIsBeingWrittenWaits(t *testing.T) {
	a, r, epoch := deafPeer(t, func(cfg *Config) { cfg.Heartbeat = time.Hour })
	body := &transfer.MsgGrant{HasInline: true, Inline: make([]byte, maxFrame-1<<10)} // more than the kernel takes
	a.Send("b", epoch, body)
	at := a.channelOf("b")
	queued := func() int {
		at.mu.Lock()
		defer at.mu.Unlock()
		return len(at.out)
	}
	for queued() > 0 && !at.ended.Load() {
		runtime.Gosched()
	}
	if n := at.waiting(); n == 0 || n > maxFrame {
		t.Errorf("%d bytes wait while the writer has some of %d in hand", n, len(body.Inline))
	}
	for {
		f, err := r.in.next(maxFrame)
		if err != nil {
			t.Fatal(err)
		}
		if f.kind == kindGrant {
			break
		}
	}
	for at.waiting() > 0 && !at.ended.Load() {
		runtime.Gosched()
	}
	if n := at.waiting(); n > 0 {
		t.Errorf("%d bytes wait, and the peer has read all", n)
	}
}

// TestAPeerThatReadsTooSlowlyIsGivenUp once too much waits for it, with what is being written.
func TestAPeerThatReadsTooSlowlyIsGivenUp(t *testing.T) {
	a, _, epoch := deafPeer(t, func(cfg *Config) { cfg.Heartbeat = time.Hour })
	at := a.channelOf("b")
	at.wmu.Lock() // nothing is written meanwhile
	at.inHand.Store(mostQueued)
	a.Queue("b", epoch, &transfer.MsgParked{}, false)
	if at.why() != nil || at.waiting() <= mostQueued {
		t.Errorf("%d bytes wait of %d, and it is given up: %+v", at.waiting(), mostQueued, at.why())
	}
	a.Queue("b", epoch, &transfer.MsgParked{}, false)
	at.wmu.Unlock()
	if down := wait[transfer.PeerDown](a, nil); down.Epoch != epoch || !strings.Contains(down.Cause.Text, "the peer reads too slowly") {
		t.Errorf("%+v", down)
	}
}
