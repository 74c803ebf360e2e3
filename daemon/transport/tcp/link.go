package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/internal/pulse"
)

var (
	errChannelOver = errors.New("the channel is over")
	errReplaced    = errors.New("another link has come in its place")
	errPeerClosed  = errors.New("the peer closed it")
)

// link is a data connection with its two goroutines.
type link struct {
	*transport.Link
	ch     *channel
	born   time.Time
	wire   *wire      // of a plain link, set by ends; guarded by the channel's lock until then
	tx, rx pulse.Beat // of the two goroutines
	dead   atomic.Bool
	once   sync.Once
	why    error // set before dead
}

// ChannelUp notes that a channel works. It has no link yet.
func (t *Transport) ChannelUp(peer string, epoch uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.up[peer] = epoch
	t.forgetPeers(time.Now())
}

// LinkUp takes over a link. If its channel is over, the link is closed at once. It replaces an older link of the same
// index.
func (t *Transport) LinkUp(tl *transport.Link) {
	t.mu.Lock()
	if cause := t.usable(transfer.Leg{Peer: tl.Peer, Epoch: tl.Epoch}); cause.Reason != transfer.OK {
		t.mu.Unlock()
		_ = hardClose(tl.Conn)
		return
	}
	ch := t.channel(channelKey{tl.Peer, tl.Epoch})
	ch.expect()
	t.mu.Unlock()
	ch.add(&link{Link: tl, ch: ch, born: time.Now()})
}

// expect says that a link is coming, so the channel must not be forgotten. It is called with the transport's lock held.
func (ch *channel) expect() {
	ch.mu.Lock()
	ch.linked = true
	ch.mu.Unlock()
}

func (ch *channel) add(l *link) {
	ch.mu.Lock()
	if ch.down {
		ch.mu.Unlock()
		_ = hardClose(l.Conn)
		return
	}
	old := ch.links[l.Index]
	ch.links[l.Index] = l
	ch.running.Add(1)
	ch.mu.Unlock()
	if old != nil {
		old.fail(errReplaced)
	}
	go func() { defer ch.running.Done(); l.run() }()
}

// LinksDown ends the links of a channel that is over. Slices in flight end with PeerGone before it returns.
func (t *Transport) LinksDown(peer string, epoch uint64) {
	key := channelKey{peer, epoch}
	t.mu.Lock()
	t.over[peer] = ended{epoch, time.Now()}
	if t.up[peer] == epoch {
		delete(t.up, peer)
	}
	ch := t.channels[key]
	delete(t.channels, key)
	t.mu.Unlock()
	if ch != nil {
		ch.close(channelDown)
	}
}

// run sends and receives until the link fails, and then has it replaced.
func (l *link) run() {
	tx, rx, err := l.ends()
	defer l.release()
	if err != nil {
		l.fail(err)
		l.lost()
		return
	}
	var both sync.WaitGroup
	both.Add(1)
	go func() { defer both.Done(); l.fail(tx.run()) }()
	l.fail(rx.run())
	both.Wait()
	l.lost()
}

// ends makes the link's sender and receiver.
func (l *link) ends() (*sender, *receiver, error) {
	cfg := &l.ch.t.cfg
	tx := &sender{link: l, crc: cfg.CRC.checksums(l.Link), staged: cfg.Staged}
	rx := &receiver{link: l, staged: cfg.Staged}
	tx.init()
	rx.init()
	if l.TCP == nil {
		return tx, rx, nil
	}
	if err := l.unplug(); err != nil {
		return nil, nil, fmt.Errorf("data link: %w", err)
	}
	tx.sock = newSocket(l.wire, true, l.ch.t, &l.tx)
	rx.sock = newSocket(l.wire, false, l.ch.t, &l.rx)
	// Report what has ended before a long wait: a peer that stalls must not keep it from its owners.
	tx.sock.parked, rx.sock.parked = tx.flush, rx.flush
	rx.sock.paused = rx.pause
	rx.sock.rested = rx.near.leave // a sender calls near.leave itself, in idle
	return tx, rx, nil
}

// unplug turns the plain connection into a wire.
func (l *link) unplug() (err error) {
	l.ch.mu.Lock()
	defer l.ch.mu.Unlock()
	if l.dead.Load() {
		return l.why
	}
	if transport.Loopback(l.TCP.RemoteAddr()) {
		_ = l.TCP.SetWriteBuffer(loopbackUnacked) // as far as the system allows; without it the stream is slower
	}
	l.wire, err = newWire(l.TCP)
	return err
}

// release frees the wire. It is called when both goroutines have ended, so the link has failed.
func (l *link) release() {
	if l.wire != nil {
		l.wire.close()
	}
}

// hangUp ends the connection. It is called with the channel's lock held, before release.
func (l *link) hangUp() {
	if l.wire != nil {
		l.wire.hangUp()
		return
	}
	_ = hardClose(l.Conn)
}

// fail ends the connection, and with it both goroutines. Only the first reason counts.
func (l *link) fail(why error) {
	l.once.Do(func() {
		if errors.Is(why, io.EOF) {
			why = errPeerClosed
		}
		l.why = why
		// With the lock held: otherwise a sender that has checked dead and is about to wait would sleep on.
		l.ch.mu.Lock()
		l.dead.Store(true)
		l.hangUp()
		l.ch.mu.Unlock()
		l.ch.posted.Broadcast()
	})
}

// lost reports that nothing lands through the link any more, and asks for a new one.
func (l *link) lost() {
	ch, t := l.ch, l.ch.t
	ch.mu.Lock()
	mine := ch.links[l.Index] == l
	if mine {
		delete(ch.links, l.Index)
	}
	down := ch.down
	ch.mu.Unlock()
	if down {
		return
	}
	ch.count.links.Add(1)
	// Not a warning: perhaps the channel is about to end. Whoever reopens the link gives the warning.
	t.cfg.Log.Debug("data link lost", "peer", l.Peer, "epoch", l.Epoch, "link", l.Index, "error", l.why)
	t.cfg.Sink.Event(transfer.LinkLost{Node: l.Peer, Epoch: l.Epoch})
	t.mu.Lock()
	source := t.source
	t.mu.Unlock()
	if !mine || source == nil || !l.settle() || ch.has(l.Index) { // a replacement has come already
		return
	}
	source.Redial(ch.ctx, l.Link)
}

func (ch *channel) has(index int) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.links[index] != nil
}

// youth is the age below which a link's end suggests that a new link would fail at once, too.
const youth = time.Second

// settle waits until the link would be as old as youth. It keeps a link that always fails at once from being reopened
// in a tight loop. False: the channel is over.
func (l *link) settle() bool {
	age := time.Since(l.born)
	if age >= youth {
		return true
	}
	timer := time.NewTimer(youth - age)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ch.ctx.Done():
		return false
	}
}

// hardClose closes the connection below TLS: TLS would wait to say goodbye to a peer that does not read.
func hardClose(c net.Conn) error {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn().Close()
	}
	return c.Close()
}
