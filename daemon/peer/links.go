package peer

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// links are a channel's data connections. The side that dialed the channel dials them too; each proves with a secret of its own,
// derived from the channel's and used once, that it belongs to the channel.
type links struct {
	want  int
	plain bool

	mu     sync.Mutex
	have   int
	serial uint32 // dialing side: numbers the attempts; accepting side: the highest seen, so that none comes twice
	used   map[uint32]bool
	full   chan struct{} // closed when all wanted links came
	over   bool
}

func (l *links) init(m *Manager, h *peerpb.Hello) {
	l.plain = m.cfg.Insecure || m.cfg.DataPlain && h.DataPlain
	if m.cfg.Links != nil {
		l.want = min(m.cfg.Streams, int(min(h.Streams, 64)))
	}
	l.used, l.full = map[uint32]bool{}, make(chan struct{})
	if l.want == 0 {
		close(l.full)
	}
}

func (l *links) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.have
}

func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}

// added counts a link; false when the channel is over.
func (l *links) added() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	if l.have++; l.have == l.want {
		select {
		case <-l.full:
		default:
			close(l.full)
		}
	}
	return true
}

// linkHello is the first thing on a data link, 64 bytes little endian: "KVPL", u32 index, u64 epoch, u32 serial, u32 zero, 32 bytes proof, 8 zero.
// The answer is one byte, 1.
const linkHelloSize = 64

func linkHello(secret []byte, epoch uint64, index, serial uint32) []byte {
	b := make([]byte, linkHelloSize)
	copy(b, plainLink)
	binary.LittleEndian.PutUint32(b[4:], index)
	binary.LittleEndian.PutUint64(b[8:], epoch)
	binary.LittleEndian.PutUint32(b[16:], serial)
	copy(b[24:], proof(secret, b[:24]))
	return b
}

func proof(secret, said []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(said)
	return h.Sum(nil)
}

// openLinks dials all wanted links and returns when each is up or failed. A channel without them still serves small hand-overs.
func (c *channel) openLinks(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range c.links.want {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := c.openLink(ctx, i); err != nil {
				c.m.log.Warn("data link failed", "peer", c.node, "epoch", c.epoch, "link", i, "error", err)
			}
		}()
	}
	wg.Wait()
}

func (c *channel) openLink(ctx context.Context, index int) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	tcp, err := dialAny(ctx, []string{c.conn.RemoteAddr().String()})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })
	var conn net.Conn = tcp
	if !c.links.plain {
		var node string
		if conn, node, err = c.m.secure(ctx, tcp, true, alpnData); err == nil && node != c.node {
			err = fmt.Errorf("certificate of node %q on a link of %q", node, c.node)
		}
	}
	if err == nil {
		c.links.mu.Lock()
		c.links.serial++
		serial := c.links.serial
		c.links.mu.Unlock()
		_, err = conn.Write(linkHello(c.secret, c.epoch, uint32(index), serial))
	}
	var ok [1]byte
	if err == nil {
		_, err = io.ReadFull(conn, ok[:])
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil && ok[0] != 1 {
		err = fmt.Errorf("answer %d", ok[0])
	}
	if err != nil {
		_ = tcp.Close()
		return err
	}
	_ = tcp.SetDeadline(time.Time{})
	c.linkUp(conn, tcp, index)
	return nil
}

// linkUp hands a proven link to its user, which closes it; or closes it when the channel is over.
func (c *channel) linkUp(conn net.Conn, tcp *net.TCPConn, index int) {
	l := &transport.Link{Conn: conn, Peer: c.node, Epoch: c.epoch, Index: index}
	if conn == net.Conn(tcp) {
		l.TCP = tcp
	}
	c.mu.Lock()
	over := c.over
	if !over {
		// Under the channel's lock, so that close() does not pass LinksDown before it.
		c.m.cfg.Links.LinkUp(l)
	}
	c.mu.Unlock()
	if over || !c.links.added() {
		_ = conn.Close()
	}
}

// awaitLinks gives the dialing side time to open the links, so that the first transfer finds them.
func (c *channel) awaitLinks(ctx context.Context) {
	t := time.NewTimer(dialTimeout)
	defer t.Stop()
	select {
	case <-c.links.full:
	case <-c.stop:
	case <-t.C:
	case <-ctx.Done():
	}
}

// acceptLink checks a link's hello. node is who the certificate names, "" for plain links.
func (m *Manager) acceptLink(conn net.Conn, tcp *net.TCPConn, head []byte, node string) error {
	var b [linkHelloSize]byte
	n := copy(b[:], head)
	if _, err := io.ReadFull(conn, b[n:]); err != nil {
		return fmt.Errorf("read link hello: %w", err)
	}
	index, epoch, serial := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:])
	c := m.byEpoch(epoch)
	switch {
	case string(b[:4]) != plainLink:
		return malformed("link hello begins with %q", b[:4])
	case c == nil || c.dialed:
		return malformed("link of an unknown channel")
	case !hmac.Equal(b[24:56], proof(c.secret, b[:24])):
		return malformed("link with a wrong secret for the channel of %q", c.node)
	case node != "" && node != c.node:
		return malformed("certificate of node %q on a link of %q", node, c.node)
	case node == "" && !c.links.plain:
		return malformed("plain link, but this channel's links are encrypted")
	case int(index) >= c.links.want:
		return malformed("link %d of %d", index, c.links.want)
	}
	c.links.mu.Lock()
	again := c.links.used[serial] || len(c.links.used) > 1<<16
	c.links.used[serial] = true
	c.links.mu.Unlock()
	if again {
		return malformed("link secret used twice")
	}
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Time{})
	c.linkUp(conn, tcp, int(index))
	return nil
}

func (m *Manager) byEpoch(epoch uint64) *channel {
	for _, c := range m.all() {
		if c.epoch == epoch {
			return c
		}
	}
	return nil
}

// Redial opens a lost link again, with pauses in between, until it is up, the channel is over or ctx ends. Implements transport.LinkSource:
// it returns at once, and does nothing on the side that did not dial.
func (m *Manager) Redial(ctx context.Context, peer string, epoch uint64, index int) {
	c := m.channelOf(peer)
	if c == nil || c.epoch != epoch {
		return
	}
	c.links.mu.Lock()
	c.links.have--
	over := c.links.over
	c.links.mu.Unlock()
	if over || !c.dialed {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		c.reopen(ctx, index)
	}()
}

func (c *channel) reopen(ctx context.Context, index int) {
	wait := firstWait
	for {
		t := time.NewTimer(jitter(wait))
		select {
		case <-t.C:
		case <-c.stop:
		case <-ctx.Done():
		}
		t.Stop()
		select {
		case <-c.stop:
			return
		case <-ctx.Done():
			return
		default:
		}
		err := c.openLink(c.m.ctx, index)
		if err == nil {
			return
		}
		c.m.log.Warn("data link failed", "peer", c.node, "epoch", c.epoch, "link", index, "error", err)
		wait = min(2*wait, c.m.cfg.DialMax)
	}
}
