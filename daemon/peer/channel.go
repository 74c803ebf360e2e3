package peer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// maxQueued bounds what waits for a peer that does not read; above it the channel is closed.
const maxQueued = 64 << 20

// channel is the authenticated control connection with one node, in one epoch. A reader, a writer and a heartbeat serve it.
type channel struct {
	m           *Manager
	node, addr  string
	epoch       uint64
	incarnation uint64
	hello       *peerpb.Hello
	dialed      bool
	secret      []byte
	conn        net.Conn
	raw         syscall.RawConn // of the TCP connection below conn
	r           *bufio.Reader
	buf         []byte
	since       time.Time

	heard, worked atomic.Int64 // unix nanoseconds: last frame in, last frame that was no heartbeat
	rtt           atomic.Int64

	wmu   sync.Mutex // held while writing to conn; before mu
	spare []byte     // guarded by wmu

	mu     sync.Mutex
	out    []byte // encoded frames that wait for the writer
	wake   chan struct{}
	up     bool            // PeerUp was emitted
	hints  []string        // that will be part of PeerUp
	doomed *transfer.Cause // why the reader is to close it
	over   bool
	stop   chan struct{}
	links  links
}

func (m *Manager) newChannel(conn net.Conn, tcp *net.TCPConn, r *bufio.Reader, buf []byte, node string, h *peerpb.Hello, epoch uint64, secret []byte, dialed bool) *channel {
	c := &channel{
		m: m, node: node, epoch: epoch, incarnation: h.Incarnation, hello: h, dialed: dialed, secret: secret,
		conn: conn, r: r, buf: buf, since: time.Now(), wake: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	_ = tcp.SetWriteBuffer(sendBuffer) // less is slower, never wrong: hasRoom asks what is pending
	if raw, err := tcp.SyscallConn(); err == nil {
		c.raw = raw
	}
	c.links.init(m, h)
	now := time.Now().UnixNano()
	c.heard.Store(now)
	c.worked.Store(now)
	return c
}

// start announces the channel and begins to serve it.
func (c *channel) start() {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	c.up = true
	c.m.cfg.Events(transfer.PeerUp{Node: c.node, Epoch: c.epoch, Hints: c.hints})
	c.m.wg.Add(3)
	c.mu.Unlock()
	c.m.log.Info("peer up", "peer", c.node, "epoch", c.epoch, "address", c.addr, "dialed", c.dialed, "links", c.links.count(), "secure", !c.m.cfg.Insecure)
	go func() { defer c.m.wg.Done(); c.read() }()
	go func() { defer c.m.wg.Done(); c.write() }()
	go func() { defer c.m.wg.Done(); c.beat() }()
}

// announce says to the machine that hint means this channel's node, now or when the channel is up; false when it is over.
func (c *channel) announce(hint string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over:
		return false
	case c.up:
		c.m.cfg.Events(transfer.PeerUp{Node: c.node, Epoch: c.epoch, Hints: []string{hint}})
	default:
		c.hints = append(c.hints, hint)
	}
	return true
}

func (c *channel) send(msg transfer.Msg) {
	f, err := encode(c.epoch, msg)
	if err == nil {
		c.worked.Store(time.Now().UnixNano())
		err = c.queue(f)
	}
	if err != nil {
		// Not here: closing waits for links, and this may be the goroutine that the machine runs on.
		c.doom(transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("channel to %q: %v", c.node, err)})
	}
}

// doom closes the channel soon, by its reader.
func (c *channel) doom(cause transfer.Cause) {
	c.mu.Lock()
	if c.doomed == nil {
		c.doomed = &cause
	}
	c.mu.Unlock()
	_ = c.conn.SetReadDeadline(time.Unix(1, 0))
}

// queue appends a frame to what waits for the wire, and writes it at once when that cannot block.
func (c *channel) queue(f *peerpb.Frame) error {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return nil
	}
	if len(c.out) > maxQueued {
		c.mu.Unlock()
		return fmt.Errorf("%d bytes wait and the peer does not read", len(c.out))
	}
	b, err := appendFrame(c.out, f)
	if err == nil {
		c.out = b
	}
	small := c.up && len(c.out) <= maxAtOnce
	c.mu.Unlock()
	if err != nil {
		return err
	}
	// Waking the writer takes longer than a small write.
	if small && c.wmu.TryLock() {
		room := c.hasRoom()
		if room {
			err = c.flush()
		}
		c.wmu.Unlock()
		if room {
			return err
		}
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return nil
}

// maxAtOnce is the most that is written by whoever sends it. The kernel takes at least twice that without blocking when nothing
// waits.
const maxAtOnce = 64 << 10

// sendBuffer is what the control connection asks the kernel for: room for twice maxAtOnce with the kernel's own overhead.
const sendBuffer = 512 << 10

// hasRoom says whether maxAtOnce bytes can be written without blocking.
func (c *channel) hasRoom() bool {
	if c.raw == nil {
		return false
	}
	n := maxAtOnce + 1
	err := c.raw.Control(func(fd uintptr) {
		if unsent, err := sys.UnsentBytes(fd); err == nil {
			n = unsent
		}
	})
	return err == nil && n <= maxAtOnce
}

// flush writes what is queued. The caller holds wmu.
func (c *channel) flush() error {
	c.mu.Lock()
	b := c.out
	c.out = c.spare[:0]
	c.mu.Unlock()
	c.spare = b
	if len(b) == 0 {
		return nil
	}
	_, err := c.conn.Write(b)
	if cap(b) > 1<<20 {
		c.spare = nil
	}
	return err
}

// write is the writer: it sends what could not be sent at once.
func (c *channel) write() {
	for {
		select {
		case <-c.wake:
		case <-c.stop:
			return
		}
		c.wmu.Lock()
		err := c.flush()
		c.wmu.Unlock()
		if err != nil {
			c.close(transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("write to peer %q: %v", c.node, err)}, false)
			return
		}
	}
}

func (c *channel) read() {
	for {
		f, buf, err := readFrame(c.r, c.buf)
		if c.buf = buf; cap(buf) > 1<<20 {
			c.buf = nil
		}
		if err == nil {
			c.heard.Store(time.Now().UnixNano())
			err = c.handle(f)
		}
		if err == nil {
			continue
		}
		var bad *malformedError
		if errors.As(err, &bad) {
			c.m.count(func(s *Stats) { s.Malformed++ })
			c.m.log.Warn("malformed frame, channel closed", "peer", c.node, "epoch", c.epoch, "error", err)
			c.close(transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("peer %q sent a %v", c.node, err)}, true)
			return
		}
		if cause := c.why(); cause != nil {
			c.close(*cause, true)
			return
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("connection closed by the peer")
		}
		c.close(transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("peer %q: %v", c.node, err)}, false)
		return
	}
}

func (c *channel) why() *transfer.Cause {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doomed
}

// handle takes one frame. Frames of another epoch belong to a channel that is over and are dropped.
func (c *channel) handle(f *peerpb.Frame) error {
	if f.Epoch != c.epoch {
		return nil
	}
	switch k := f.Kind.(type) {
	case *peerpb.Frame_Heartbeat:
		if !k.Heartbeat.Reply {
			return c.queue(&peerpb.Frame{Epoch: c.epoch, Kind: &peerpb.Frame_Heartbeat{Heartbeat: &peerpb.Heartbeat{Seq: k.Heartbeat.Seq, Reply: true}}})
		}
		if sent := int64(k.Heartbeat.Seq); sent > 0 {
			c.rtt.Store(max(time.Now().UnixNano()-sent, 0))
		}
		return nil
	case *peerpb.Frame_Close:
		text := k.Close.Text
		if len(text) > maxText {
			text = text[:maxText]
		}
		return fmt.Errorf("said goodbye: %s", text)
	case *peerpb.Frame_Hello:
		return malformed("a second hello")
	case nil:
		return malformed("a frame of no known kind")
	}
	msg, err := decode(f)
	if err != nil {
		return err
	}
	c.worked.Store(time.Now().UnixNano())
	c.m.cfg.Queue(transfer.PeerMsg{Node: c.node, Epoch: c.epoch, Msg: msg})
	c.m.cfg.Flush()
	return nil
}

// prod asks for a sign of life now, when somebody doubts the channel.
func (c *channel) prod() {
	_ = c.queue(&peerpb.Frame{Epoch: c.epoch, Kind: &peerpb.Frame_Heartbeat{Heartbeat: &peerpb.Heartbeat{Seq: uint64(time.Now().UnixNano())}}})
}

// close ends the channel once: links first, so that nothing lands after the machine hears of it. goodbye tells the peer why.
func (c *channel) close(cause transfer.Cause, goodbye bool) {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	c.over = true
	up := c.up
	c.mu.Unlock()
	close(c.stop)
	if goodbye {
		b, err := appendFrame(nil, &peerpb.Frame{Epoch: c.epoch, Kind: &peerpb.Frame_Close{Close: &peerpb.Close{Reason: uint32(cause.Reason), Text: cause.Text}}})
		if err == nil {
			_ = c.conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			_, _ = c.conn.Write(b)
		}
	}
	_ = c.conn.Close()
	c.links.close()
	if u := c.m.cfg.Links; u != nil {
		u.LinksDown(c.node, c.epoch)
	}
	c.m.uninstall(c)
	if !up {
		for _, h := range c.hints {
			c.m.cfg.Events(transfer.DialFailed{Hint: h, Cause: cause})
		}
		return
	}
	c.m.log.Info("peer down", "peer", c.node, "epoch", c.epoch, "reason", cause.Text)
	c.m.cfg.Events(transfer.PeerDown{Node: c.node, Epoch: c.epoch, Cause: cause})
}

func (c *channel) status() Status {
	s := Status{
		Node: c.node, Address: c.addr, State: "up", Epoch: c.epoch, Incarnation: c.incarnation, Version: c.hello.Version,
		Proto: min(c.hello.ProtoMax, ProtoMax), Advertise: c.hello.Advertise, Dialed: c.dialed, Secure: !c.m.cfg.Insecure,
		DataPlain: c.links.plain, Links: c.links.count(), Transports: c.hello.Transports, Since: c.since, RTT: time.Duration(c.rtt.Load()),
	}
	return s
}
