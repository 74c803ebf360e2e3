package peer

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// channel is the authenticated control connection with one node, in one epoch. A reader, a writer and a heartbeat serve
// it.
//
// Locks, outer first: spreading or telling, the manager's, wmu, mu, links.mu. None is held when the reader hands on a
// message, since the machine may run there, nor when a link user is told that links are over.
type channel struct {
	m           *Manager
	node, addr  string
	epoch       uint64
	incarnation uint64
	hello       *peerpb.Hello
	dialed      bool
	secret      []byte
	conn        net.Conn
	tcp         *net.TCPConn    // below conn
	raw         syscall.RawConn // of tcp
	in          *frames
	known       stores
	since       time.Time
	ctx         context.Context // ends when the channel is over
	cancel      context.CancelFunc

	heard, worked atomic.Int64 // manager's clock: last frame, or part of a large one, in; last frame but heartbeats, in or out
	drained       atomic.Int64 // manager's clock: when the kernel last took some of what waits, or nothing waited
	inHand        atomic.Int64 // bytes being written that the kernel has not taken yet
	noted         atomic.Int64 // bytes that had arrived when heard was set
	rtt           atomic.Int64
	up            atomic.Bool // PeerUp was or is about to be emitted; set under mu
	ended         atomic.Bool
	roots         *x509.CertPool // by which the peer was last judged; for the judge
	behind        atomic.Bool    // the reader is waiting for the machine, or for the peer to read
	running       atomic.Bool    // the reader is running the machine
	backlog       backlog        // for the reader
	hasty         atomic.Uint64  // odd while somebody writes who must not wait; counts up at both ends

	wmu    sync.Mutex // held while writing to conn
	spare  []byte     // guarded by wmu
	broken bool       // guarded by wmu: a write failed, perhaps in the middle of a frame
	room   int        // guarded by wmu: at least so much can the kernel still take

	mu     sync.Mutex
	out    []byte        // encoded frames that wait for the wire
	late   time.Duration // tooLate will run within that time; 0: it will not
	wake   chan struct{}
	taken  chan struct{}   // signals that the kernel took some of what waited
	hints  []string        // for PeerUp
	doomed *transfer.Cause // why the reader shall close the channel
	over   bool
	links  links

	telling   sync.Mutex // held while the peer is told addresses
	spreading sync.Mutex // held while links move
	spreadAt  time.Time  // when links last moved; guarded by spreading
	spreadDue atomic.Bool
}

// sides are the layers of a connection.
type sides struct {
	conn net.Conn
	tcp  *net.TCPConn
	in   *frames
}

func (m *Manager) newChannel(s sides, node string, h *peerpb.Hello, epoch uint64, secret []byte, dialed bool) *channel {
	c := &channel{
		m: m, node: node, epoch: epoch, incarnation: h.Incarnation, hello: h, dialed: dialed, secret: secret,
		conn: s.conn, tcp: s.tcp, in: s.in, since: time.Now(), wake: make(chan struct{}, 1), taken: make(chan struct{}, 1),
	}
	c.known.payloads = m.cfg.Payloads
	c.ctx, c.cancel = context.WithCancel(m.ctx)
	_ = s.tcp.SetWriteBuffer(sendBuffer) // a smaller buffer is slower but never wrong: hasRoom asks what is left
	if raw, err := s.tcp.SyscallConn(); err == nil {
		c.raw = raw
	}
	c.links.init(m, s.tcp, h)
	return c
}

// start announces the channel and begins to serve it.
func (c *channel) start() {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	c.up.Store(true)
	now := c.m.clock() // before this, nobody listened
	c.hears(now)
	c.worked.Store(now)
	if u := c.m.cfg.Links; u != nil {
		u.ChannelUp(c.node, c.epoch) // before the machine can choose a transport
	}
	c.m.cfg.Events(transfer.PeerUp{Node: c.node, Epoch: c.epoch, Incarnation: c.incarnation, Hints: c.hints})
	c.m.wg.Go(c.read)
	c.m.wg.Go(c.write)
	c.m.wg.Go(c.beat)
	c.mu.Unlock()
	if c.m.cfg.Rails != nil {
		c.tellAddresses() // what has changed since Hello
		c.spreadAgain()
	}
	says := []any{"peer", c.node, "epoch", c.epoch, "address", c.addr, "dialed", c.dialed, "links", c.links.count(), "secure", !c.m.cfg.Insecure, "data_plain", c.links.plain}
	if c.links.plain {
		says = append(says, "data_plain_reason", c.links.why)
	}
	if serves := c.m.cfg.Transport; serves != nil {
		says = append(says, "transport", serves(c.node, c.barred))
	}
	c.m.log.Info("peer up", says...)
}

// announce tells the machine that hint means this channel's node, now or when the channel comes up. False: it is over.
func (c *channel) announce(hint string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over:
		return false
	case c.up.Load():
		c.m.cfg.Events(transfer.PeerUp{Node: c.node, Epoch: c.epoch, Incarnation: c.incarnation, Hints: []string{hint}})
	default:
		c.hints = append(c.hints, hint)
	}
	return true
}

func (c *channel) isUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up.Load() && !c.over
}

// doom has the reader close the channel soon. Closing waits for links, and the caller may be the goroutine that runs
// the machine.
func (c *channel) doom(cause transfer.Cause) {
	c.mu.Lock()
	if c.doomed == nil {
		c.doomed = &cause
	}
	c.mu.Unlock()
	_ = c.tcp.SetReadDeadline(past)
}

func (c *channel) why() *transfer.Cause {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doomed
}

// past is a deadline that has passed: it ends a wait at once.
var past = time.Unix(1, 0)

// goodbyeWait is how long a side that has said goodbye waits for the other to hang up. If it closed earlier, that could
// reset the connection and destroy the goodbye.
const goodbyeWait = 250 * time.Millisecond

// close ends the channel, once. Links end first, so that nothing lands after the machine hears of it. goodbye: tell the
// peer why.
func (c *channel) close(cause transfer.Cause, goodbye bool) {
	c.closeIf(func() bool { return true }, cause, goodbye)
}

// closeIf closes the channel if still holds at the moment from which nothing more is sent, and says whether it did.
func (c *channel) closeIf(still func() bool, cause transfer.Cause, goodbye bool) bool {
	c.mu.Lock()
	if c.over || !still() {
		c.mu.Unlock()
		return false
	}
	c.over = true
	up := c.up.Load()
	c.mu.Unlock()
	c.ended.Store(true)
	c.cancel()
	if goodbye && c.farewell(cause) && up {
		_ = c.tcp.SetReadDeadline(time.Now().Add(goodbyeWait)) // the reader hangs up
	} else {
		_ = c.tcp.Close()
	}
	c.links.close()
	if u := c.m.cfg.Links; u != nil {
		u.LinksDown(c.node, c.epoch)
	}
	c.m.uninstall(c, cause)
	if !up {
		for _, h := range c.hints {
			c.m.cfg.Events(transfer.DialFailed{Hint: h, Cause: cause})
		}
		return true
	}
	c.m.log.Info("peer down", "peer", c.node, "epoch", c.epoch, "reason", cause.Text)
	c.m.cfg.Events(transfer.PeerDown{Node: c.node, Epoch: c.epoch, Cause: cause})
	return true
}

func (c *channel) status() Status {
	return Status{
		Node: c.node, Address: c.addr, State: c.state(), Epoch: c.epoch, Incarnation: c.incarnation, Version: c.hello.Version,
		Proto: min(c.hello.ProtoMax, c.m.cfg.Proto[1]), Advertise: c.hello.Advertise, Dialed: c.dialed, Secure: !c.m.cfg.Insecure,
		DataPlain: c.links.plain, WhyPlain: c.links.why, Links: c.links.count(), Streams: c.links.streams(), Transports: c.hello.Transports, Since: c.since, RTT: time.Duration(c.rtt.Load()),
	}
}

// state is "dialing" until the links are there or their time is over, whichever side dials. It takes no lock: mu may be
// held while a link user runs.
func (c *channel) state() string {
	switch {
	case c.ended.Load():
		return "down"
	case c.up.Load():
		return "up"
	}
	return "dialing"
}

func (c *channel) gone(err error) transfer.Cause {
	return transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("peer %q: %v", c.node, err)}
}
