package peer

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// ALPN names, and the four bytes that begin a connection without TLS.
const (
	alpnControl  = "kvpipe/1"
	alpnData     = "kvpipe-data/1"
	plainControl = "KVPC"
	plainLink    = "KVPL"
)

// closeDuplicate is the reason of a Close that ends one of two channels opened at the same time.
const closeDuplicate = 1000

func (m *Manager) hello() *peerpb.Hello {
	return &peerpb.Hello{
		ProtoMin: ProtoMin, ProtoMax: ProtoMax, Node: m.cfg.Node, Incarnation: m.cfg.Incarnation, Advertise: m.cfg.Advertise,
		Version: m.cfg.Version, Transports: m.cfg.Transports, Streams: uint32(m.cfg.Streams), DataPlain: m.cfg.DataPlain,
	}
}

// greet is the dialing side of a new connection: TLS, Hello, Hello, links, channel.
func (m *Manager) greet(ctx context.Context, tcp *net.TCPConn, t target) (*channel, error) {
	conn, node, err := m.secure(ctx, tcp, true, alpnControl)
	if err != nil {
		return nil, err
	}
	mine := m.hello()
	m.mu.Lock()
	mine.LostEpoch = m.lost[t.node]
	if node != "" {
		mine.LostEpoch = m.lost[node]
	}
	m.mu.Unlock()
	b, err := appendFrame(nil, &peerpb.Frame{Kind: &peerpb.Frame_Hello{Hello: mine}})
	if err != nil {
		return nil, err
	}
	if m.cfg.Insecure {
		b = append([]byte(plainControl), b...)
	}
	if _, err := conn.Write(b); err != nil {
		return nil, fmt.Errorf("say hello: %w", err)
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	f, buf, err := readFrame(r, nil)
	if err != nil {
		return nil, fmt.Errorf("wait for hello: %w", err)
	}
	if cl := f.GetClose(); cl != nil {
		if cl.Reason == closeDuplicate {
			return nil, &duplicateError{node}
		}
		return nil, final(transfer.Reason(min(cl.Reason, uint32(transfer.Closed))), "refused: %s", cl.Text)
	}
	h := f.GetHello()
	if h == nil {
		return nil, malformed("first frame is %T, not hello", f.Kind)
	}
	if node == "" {
		node = h.Node
	}
	if err := m.acceptable(h, node, t.node); err != nil {
		return nil, err
	}
	if h.Epoch == 0 || len(h.LinkSecret) != 32 {
		return nil, malformed("hello without epoch or link secret")
	}
	c := m.newChannel(conn, tcp, r, buf, node, h, h.Epoch, h.LinkSecret, true)
	c.addr = t.addr
	if err := m.install(c, 0); err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	c.openLinks(ctx)
	c.start()
	return c, nil
}

// acceptable checks who the other side is and that both speak a common version.
func (m *Manager) acceptable(h *peerpb.Hello, node, want string) error {
	switch {
	case h.Node != node:
		return final(transfer.Denied, "certificate of node %q, but it calls itself %q", node, h.Node)
	case want != "" && node != want:
		return final(transfer.Denied, "node %q answers there, not %q: correct peers.nodes", node, want)
	case node == m.cfg.Node:
		return final(transfer.Invalid, "that is this node, %q, itself: leave the peer out", node)
	case h.ProtoMin > ProtoMax || h.ProtoMax < ProtoMin:
		return final(transfer.Incompatible, "speaks versions %d to %d of the peer protocol (%s), this daemon %d to %d (%s)",
			h.ProtoMin, h.ProtoMax, h.Version, ProtoMin, ProtoMax, m.cfg.Version)
	case len(h.Node) > 255 || len(h.Advertise) > 255 || len(h.Version) > 255 || len(h.Transports) > 16:
		return malformed("hello with oversized fields")
	}
	return nil
}

// welcome is the accepting side.
func (m *Manager) welcome(conn net.Conn, tcp *net.TCPConn, r *bufio.Reader, node string) error {
	f, buf, err := readFrame(r, nil)
	if err != nil {
		return err
	}
	h := f.GetHello()
	if h == nil {
		return malformed("first frame is %T, not hello", f.Kind)
	}
	if node == "" {
		node = h.Node
	}
	if err := m.acceptable(h, node, ""); err != nil {
		refuse(conn, asCause(err, ""))
		return err
	}
	var secret [32]byte
	var e [8]byte
	_, _ = rand.Read(secret[:])
	_, _ = rand.Read(e[:])
	c := m.newChannel(conn, tcp, r, buf, node, h, binary.LittleEndian.Uint64(e[:])|1, secret[:], false)
	c.addr = h.Advertise
	if err := m.install(c, h.LostEpoch); err != nil {
		refuseDuplicate(conn)
		return err
	}
	mine := m.hello()
	mine.Epoch, mine.LinkSecret = c.epoch, secret[:]
	b, err := appendFrame(nil, &peerpb.Frame{Kind: &peerpb.Frame_Hello{Hello: mine}})
	if err == nil {
		_, err = conn.Write(b)
	}
	if err != nil {
		m.uninstall(c)
		return fmt.Errorf("answer hello: %w", err)
	}
	c.awaitLinks(m.ctx)
	_ = conn.SetDeadline(time.Time{})
	c.start()
	return nil
}

func refuse(conn net.Conn, cause transfer.Cause) {
	b, err := appendFrame(nil, &peerpb.Frame{Kind: &peerpb.Frame_Close{Close: &peerpb.Close{Reason: uint32(cause.Reason), Text: cause.Text}}})
	if err == nil {
		_, _ = conn.Write(b)
	}
}

func refuseDuplicate(conn net.Conn) {
	b, err := appendFrame(nil, &peerpb.Frame{Kind: &peerpb.Frame_Close{Close: &peerpb.Close{Reason: closeDuplicate, Text: "a channel is open already"}}})
	if err == nil {
		_, _ = conn.Write(b)
	}
}

// install makes c the node's channel. Of two channels opened at the same time the one dialed by the node whose name sorts first stays;
// a node that restarted, or knows its old channel to be over, always gets the new one.
func (m *Manager) install(c *channel, lostEpoch uint64) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return final(transfer.Unavailable, "daemon is shutting down")
	}
	old := m.channels[c.node]
	if old != nil {
		same := old.incarnation == c.incarnation && old.epoch != lostEpoch
		if same && old.dialed != c.dialed && old.dialed == (m.cfg.Node < c.node) {
			m.stats.Duplicates++
			m.mu.Unlock()
			old.prod()
			return &duplicateError{c.node}
		}
	}
	m.channels[c.node] = c
	m.stats.Opened++
	if m.lost[c.node] != 0 {
		m.stats.Reconnects++
	}
	m.mu.Unlock()
	if old != nil {
		old.close(transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("node %q opened a new channel", c.node)}, false)
	}
	return nil
}

// uninstall forgets c, if it is still the node's channel.
func (m *Manager) uninstall(c *channel) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.channels[c.node] == c {
		delete(m.channels, c.node)
		m.lost[c.node] = c.epoch
	}
}
