package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// maxStreams bounds the links of a channel.
const maxStreams = 64

// links are a channel's data connections. The side that dialed the channel dials them too. Each link proves that it
// belongs to the channel with a secret of its own, derived from the channel's and used once.
type links struct {
	want  int
	here  bool // both ends are on one machine
	plain bool
	why   string // why plain: "insecure", "data_plain", "loopback"

	mu     sync.Mutex
	up     []*transport.Link // by index; nil: down
	at     []ends            // by index: where the link goes
	aim    []ends            // by index: where the link goes or is about to go
	moving []bool            // by index
	theirs []Address
	told   []Address // this node's addresses, as the peer knows them
	serial uint32    // dialing side: number of the last attempt
	seen   window    // accepting side: the numbers that came
	newest []uint32  // by index: the highest number that the link had
	full   chan struct{}
	filled bool // full is closed: all links came, or waiting is no use
}

func (l *links) init(m *Manager, tcp net.Conn, h *peerpb.Hello) {
	own := m.machine(tcp)
	l.here = len(own) > 0 && bytes.Equal(own, h.Machine)
	l.why = m.whyPlain(h, l.here)
	l.plain = l.why != ""
	l.want = min(m.cfg.Streams, int(min(h.Streams, maxStreams)))
	l.up, l.at, l.full = make([]*transport.Link, l.want), make([]ends, l.want), make(chan struct{})
	l.aim, l.newest = make([]ends, l.want), make([]uint32, l.want)
	l.moving = make([]bool, l.want)
	l.theirs, _ = decodeAddresses(h.Addresses) // acceptable has checked them
	l.complete()
}

func (l *links) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, up := range l.up {
		if up != nil {
			n++
		}
	}
	return n
}

// came notes that a link is up, and where it goes. It replaces an older link of the same index. False: it is the older
// one. The dialing side has given it up, perhaps because its way stood still, and what the way held came late.
func (l *links) came(link *transport.Link, at ends, serial uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if serial < l.newest[link.Index] {
		return false
	}
	l.newest[link.Index] = serial
	l.up[link.Index], l.at[link.Index], l.aim[link.Index] = link, at, at
	l.complete()
	return true
}

// complete checks whether all links are up. The caller holds mu.
func (l *links) complete() {
	if !slices.Contains(l.up, nil) {
		l.fill()
	}
}

// lost notes that a link is gone, and says whether to ask for a successor. None is needed for a link that moves, which
// may lose its old connection first, nor for one that has been replaced already and is reported late.
func (l *links) lost(link *transport.Link) (ask bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up[link.Index] != link {
		return false
	}
	l.up[link.Index] = nil
	return !l.moving[link.Index]
}

// move notes that a link begins or ends its move, and says whether the link is up.
func (l *links) move(index int, moving bool) (up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moving[index] = moving
	up = l.up[index] != nil
	if !moving && up {
		l.aim[index] = l.at[index] // back to where it is, if it went nowhere
	}
	return up
}

// stays says whether a moving link is up and already goes that way.
func (l *links) stays(index int, way ends) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.moving[index] && l.up[index] != nil && l.at[index] == way
}

func (l *links) fill() {
	if !l.filled {
		l.filled = true
		close(l.full)
	}
}

func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.up)
	l.fill()
}

func (l *links) next() uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serial++
	return l.serial
}

func (l *links) fresh(serial uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen.fresh(serial)
}

// openLinks dials all wanted links. The returned channel is closed when each of them is up or has failed. Failed ones
// are tried again: without them the channel still serves small hand-overs.
func (c *channel) openLinks() <-chan struct{} {
	var all sync.WaitGroup
	for i := range c.links.want {
		all.Go(func() {
			if err := c.openLink(i); err != nil {
				c.failed(i, err)
				c.reopen(c.ctx, i, 2*firstWait)
			}
		})
	}
	tried := make(chan struct{})
	c.m.wg.Go(func() { all.Wait(); close(tried) })
	return tried
}

func (c *channel) warn(text string, index int, err error) {
	if !c.ended.Load() {
		c.m.log.Warn(text, "peer", c.node, "epoch", c.epoch, "link", index, "error", err)
	}
}

// failed logs that a link failed and will be tried again. It does so now and then only: attempts may go on for hours.
func (c *channel) failed(index int, err error) {
	if c.m.linkless.Due(c.node) {
		c.warn("data link failed, trying again", index, err)
	}
}

// openLink dials a link along one of the ways to the peer.
func (c *channel) openLink(index int) error {
	return c.dialWay(c.ctx, index, func(ctx context.Context, tcp *net.TCPConn) error { return c.begin(ctx, tcp, index) })
}

// begin turns a connection into a link.
func (c *channel) begin(ctx context.Context, tcp *net.TCPConn, index int) error {
	stop := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(past) })
	serial := c.links.next()
	conn, err := c.prove(ctx, tcp, index, serial)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = tcp.Close()
		return err
	}
	_ = tcp.SetDeadline(time.Time{})
	c.linkUp(conn, tcp, index, serial)
	return nil
}

// prove does the dialing side's part of opening a link.
func (c *channel) prove(ctx context.Context, tcp *net.TCPConn, index int, serial uint32) (conn net.Conn, err error) {
	conn = tcp
	if !c.links.plain {
		var node string
		if conn, node, err = c.m.secure(ctx, tcp, true, alpnData); err != nil {
			return nil, err
		}
		if node != c.node {
			return nil, fmt.Errorf("certificate of node %q on a link of %q", node, c.node)
		}
	}
	hello := linkHello{index: uint32(index), epoch: c.epoch, serial: serial}
	if _, err := conn.Write(hello.append(nil, c.secret)); err != nil {
		return nil, err
	}
	var ok [1]byte
	if _, err := io.ReadFull(conn, ok[:]); err != nil {
		return nil, fmt.Errorf("wait for the answer to a link hello: %w", err)
	}
	if ok[0] != linkAccepted {
		return nil, fmt.Errorf("answer %d to a link hello", ok[0])
	}
	return conn, nil
}

// linkUp hands a proven link to its user, which closes it. If the channel is over, or has a newer link in its place,
// linkUp closes the link itself.
func (c *channel) linkUp(conn net.Conn, tcp *net.TCPConn, index int, serial uint32) {
	l := &transport.Link{Conn: conn, Peer: c.node, Epoch: c.epoch, Index: index, Here: c.links.here}
	if conn == net.Conn(tcp) {
		l.TCP = tcp
	}
	c.pace(tcp)
	c.watch(tcp)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || !c.links.came(l, endsOf(tcp), serial) {
		_ = tcp.Close()
		return
	}
	// Under the channel's lock, so that close cannot call LinksDown before it.
	c.m.cfg.Links.LinkUp(l)
}

// pace sets the congestion control for what this node sends over a link. The other node sets its own.
func (c *channel) pace(tcp *net.TCPConn) {
	name := c.m.cfg.Congestion
	if name == "" {
		return
	}
	if err := sys.Control(tcp, func(fd int) error { return sys.SetCongestion(fd, name) }); err != nil {
		c.m.log.Warn("tcp.congestion: a data link has the system's", "peer", c.node, "error", err)
	}
}

// unheardLeast is the least time that a data link is given to be heard again. A way that is mended within it costs
// nothing.
const unheardLeast = 5 * time.Second

// watch makes the kernel end a link whose way is dead while the channel lives on another way. With bytes under way it
// takes the limit; idle, when the other end may still need to hear of it, at most twice the limit. A peer whose buffer
// stays full for that long counts too: receivers always read, whatever becomes of the bytes, so such a peer stands
// still as a whole, and its heartbeats show that at least as soon.
func (c *channel) watch(tcp *net.TCPConn) {
	limit := c.m.cfg.unheard
	alive := net.KeepAliveConfig{Enable: true, Idle: limit, Interval: max(limit/3, time.Second), Count: silences}
	err := errors.Join(tcp.SetKeepAliveConfig(alive), sys.Control(tcp, func(fd int) error { return sys.SetUserTimeout(fd, limit) }))
	if err != nil {
		c.m.log.Warn("a data link whose way goes dead will be noticed late", "peer", c.node, "error", err)
	}
}

// awaitLook is how soon a side that waits for links notices that the peer speaks: in time for a peer with the shortest
// heartbeats that can be configured.
const awaitLook = 10 * time.Millisecond

// awaitLinks gives the dialing side time to open the links, so that the first transfer finds them. It returns early
// when tried is closed, as waiting is then no use. It waits at most one heartbeat: the peer hears nothing meanwhile and
// would give up after several. The peer's heartbeats may be closer together than this side's, so awaitLinks also
// returns soon after the peer has said something, to which it may want an answer.
func (c *channel) awaitLinks(tried <-chan struct{}) {
	t := time.NewTimer(min(dialTimeout, c.m.cfg.Heartbeat))
	defer t.Stop()
	look := time.NewTicker(awaitLook)
	defer look.Stop()
	for {
		select {
		case <-c.links.full:
			return
		case <-tried:
			return
		case <-t.C:
			return
		case <-look.C:
			if sys.Readable(c.tcp) {
				return
			}
		}
	}
}
