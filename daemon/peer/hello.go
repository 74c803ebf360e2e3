package peer

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// ALPN names, and the first four bytes of a connection without TLS.
const (
	alpnControl  = "kvpipe/1"
	alpnData     = "kvpipe-data/1"
	plainControl = "KVPC"
	plainLink    = "KVPL"
)

// Reasons of a Close that answers a Hello, besides those of transfer.Reason.
const (
	closeDuplicate = 1000 // one of two channels opened at the same time; the text names the node that says so
	closeSelf      = 1001 // the dialer has dialed itself
)

// machine returns a name of this machine that lasts until it reboots. nil: it has none.
func machine() []byte {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil
	}
	hash := sha256.Sum256(id)
	return hash[:16]
}

// machine returns the machine's name to send on a connection, nil if the connection cannot lead to a daemon on this
// machine or data links are encrypted anyway. Addresses alone prove nothing: with a forwarder at each end (kubectl
// port-forward, ssh -L) both sides see loopback.
func (m *Manager) machine(c net.Conn) []byte {
	if m.cfg.EncryptLoopback || !transport.Loopback(c.LocalAddr()) || !transport.Loopback(c.RemoteAddr()) {
		return nil
	}
	return m.cfg.machine
}

// whyPlain says why data links use no TLS; "": they use it. here: both ends are on this machine, where nobody else can
// listen.
func (m *Manager) whyPlain(h *peerpb.Hello, here bool) string {
	switch {
	case m.cfg.Insecure:
		return "insecure"
	case m.cfg.DataPlain && h.DataPlain:
		return "data_plain"
	case here:
		return "loopback"
	}
	return ""
}

func (m *Manager) hello(c net.Conn, own []Address) *peerpb.Hello {
	h := &peerpb.Hello{
		ProtoMin: m.cfg.Proto[0], ProtoMax: m.cfg.Proto[1], Node: m.cfg.Node, Incarnation: m.cfg.Incarnation, Advertise: m.cfg.Advertise,
		Version: m.cfg.Version, Transports: m.cfg.Transports, Streams: uint32(m.cfg.Streams), DataPlain: m.cfg.DataPlain, Runs: true,
		Machine: m.machine(c),
	}
	if len(own) > 0 {
		h.Addresses = encodeAddresses(own)
	}
	return h
}

// own returns this node's addresses, for a Hello.
func (m *Manager) own() []Address {
	if m.cfg.Rails == nil {
		return nil
	}
	return m.cfg.Rails.Own()
}

// readHello reads the first frame of a connection. The other side may use it to refuse.
func readHello(in *frames) (*peerpb.Hello, error) {
	f, err := in.next(maxHello)
	switch {
	case err != nil:
		return nil, fmt.Errorf("wait for hello: %w", err)
	case f.kind == kindClose:
		return nil, refusal(f.body)
	case f.kind != kindHello:
		return nil, malformed("the first frame is of kind %d, not hello", f.kind)
	}
	h := new(peerpb.Hello)
	if err := proto.Unmarshal(f.body, h); err != nil {
		return nil, malformed("hello: %v", err)
	}
	return h, nil
}

// refusal turns what the other side answered instead of a Hello into an error.
func refusal(body []byte) error {
	reason, text, err := decodeClose(body)
	switch {
	case err != nil:
		return err
	case reason == closeDuplicate:
		return &duplicateError{node: text}
	case reason == closeSelf:
		return errSelf
	case reason == uint32(transfer.Unavailable) || reason == uint32(transfer.PeerGone):
		return fmt.Errorf("refused: %s", text) // it will be back
	case reason == uint32(transfer.OK) || reason > uint32(transfer.Closed):
		reason = uint32(transfer.Unavailable) // a newer peer's reason, or none: it is a failure all the same
	}
	return final(transfer.Reason(reason), "refused: %s", text)
}

// greet does the dialing side's part of a new connection: TLS, Hello, Hello. The channel that it returns is installed
// but not up yet.
func (m *Manager) greet(ctx context.Context, tcp *net.TCPConn, t target) (*channel, error) {
	conn, node, err := m.secure(ctx, tcp, true, alpnControl)
	if err != nil {
		return nil, err
	}
	if t.node != "" && node != "" && node != t.node {
		return nil, wrongNode(node, t.node)
	}
	if node != "" {
		over, err := m.greetAlone(ctx, node)
		if err != nil {
			return nil, err
		}
		defer over()
	}
	if old := m.channelOf(node); old != nil {
		old.prod()
		return nil, &duplicateError{node: node} // found by another name
	}
	own := m.own()
	if err := m.sayHello(conn, own, m.lostEpoch(node, t.node)); err != nil {
		return nil, err
	}
	in := newFrames(conn)
	h, err := readHello(in)
	if err != nil {
		return nil, m.certain(tlsError("hello", err), node, t.node)
	}
	if node == "" {
		node = h.Node
	}
	if t.node != "" && node != t.node {
		return nil, wrongNode(node, t.node)
	}
	if err := m.acceptable(h, node); err != nil {
		return nil, err
	}
	if h.Epoch == 0 || len(h.LinkSecret) != secretSize {
		return nil, malformed("hello without epoch or link secret")
	}
	c := m.newChannel(sides{conn, tcp, in}, node, h, h.Epoch, h.LinkSecret, true)
	c.links.told = own
	c.addr = t.addr
	return c, m.install(c, 0)
}

// greetAlone waits until no other attempt is between Hello and answer with that node. Two hints can lead to one node at
// the same time. It would keep the channel of the Hello that it heard last, and this node that of the answer that it
// heard last: perhaps the other one, and then both would end. The caller calls over when it has its answer.
func (m *Manager) greetAlone(ctx context.Context, node string) (over func(), err error) {
	for {
		m.mu.Lock()
		other := m.greeting[node]
		if other == nil {
			mine := make(chan struct{})
			m.greeting[node] = mine
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				delete(m.greeting, node)
				m.mu.Unlock()
				close(mine)
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("hello: another attempt waits for the answer: %w", ctx.Err())
		}
	}
}

// otherError says that another node answers at the address of a configured one.
type otherError struct{ *finalError }

func (e *otherError) Unwrap() error { return e.finalError }

func wrongNode(node, want string) error {
	return &otherError{finally(transfer.Denied, "node %q answers there, not %q: correct peers.nodes", node, want)}
}

// certain replaces what the other side says about names by what its certificate says. If there is none, its word counts,
// and it must be the name that is wanted.
func (m *Manager) certain(err error, node, want string) error {
	var dup *duplicateError
	switch {
	case node == "" && want != "" && errors.As(err, &dup) && dup.node != want:
		return wrongNode(dup.node, want)
	case node == "" && want != "" && errors.Is(err, errSelf) && m.cfg.Node != want:
		return wrongNode(m.cfg.Node, want)
	case node == "":
		return err
	case errors.As(err, &dup):
		return &duplicateError{node: node}
	case errors.Is(err, errSelf) && node != m.cfg.Node:
		return malformed("node %q takes this node for itself", node)
	}
	return err
}

func (m *Manager) sayHello(conn net.Conn, own []Address, lost uint64) error {
	mine := m.hello(conn, own)
	mine.LostEpoch = lost
	var b []byte
	if m.cfg.Insecure {
		b = append(b, plainControl...)
	}
	b, err := appendHello(b, mine)
	if err == nil {
		_, err = conn.Write(b)
	}
	if err != nil {
		return tlsError("say hello", err)
	}
	return nil
}

// acceptable checks who the other side is, and that both sides speak a common version. node is the name in its
// certificate.
func (m *Manager) acceptable(h *peerpb.Hello, node string) error {
	switch {
	case unfit(h.Version): // which is shown even if there is no common one
		return malformed("hello with an oversized or unprintable version")
	case h.ProtoMin > m.cfg.Proto[1] || h.ProtoMax < m.cfg.Proto[0]:
		return final(transfer.Incompatible, "node %q (%s) speaks versions %d to %d of the peer protocol, node %q (%s) %d to %d: upgrade the older one",
			h.Node, h.Version, h.ProtoMin, h.ProtoMax, m.cfg.Node, m.cfg.Version, m.cfg.Proto[0], m.cfg.Proto[1])
	case h.Node != node:
		return final(transfer.Denied, "certificate of node %q, but it calls itself %q", node, h.Node)
	case node == m.cfg.Node && h.Incarnation == m.cfg.Incarnation:
		return errSelf
	case node == m.cfg.Node:
		return final(transfer.Denied, "two nodes are called %q: give each its own name and certificate", node)
	case !nameOK(h.Node) || len(h.Transports) > 16 || slices.ContainsFunc(append(h.Transports, h.Advertise), unfit):
		return malformed("hello with empty, oversized or unprintable fields")
	}
	_, err := decodeAddresses(h.Addresses)
	return err
}

// nameOK says whether a peer may have that name.
func nameOK(s string) bool { return s != "" && !unfit(s) && !strings.ContainsAny(s, " :/") }

// unfit says whether a string should not be shown to people.
func unfit(s string) bool {
	return len(s) > 255 || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

const secretSize = 32

// welcome does the accepting side's part. The channel that it returns is installed but not up yet.
func (m *Manager) welcome(s sides, node string) (*channel, error) {
	h, err := readHello(s.in)
	if err != nil && gone(err) {
		return nil, errNobody // perhaps it has found a channel with this node
	}
	if err != nil {
		return nil, tlsError("hello", err)
	}
	if node == "" {
		node = h.Node
	}
	if err := m.acceptable(h, node); err != nil {
		refuse(s.conn, err)
		return nil, err
	}
	secret, e := make([]byte, secretSize), make([]byte, 8)
	_, _ = rand.Read(secret) // never fails
	_, _ = rand.Read(e)
	c := m.newChannel(s, node, h, binary.LittleEndian.Uint64(e)|1, secret, false)
	c.addr, c.links.told = h.Advertise, m.own()
	if err := m.install(c, h.LostEpoch); err != nil {
		refuse(s.conn, err)
		return nil, err
	}
	mine := m.hello(s.tcp, c.links.told)
	mine.Epoch, mine.LinkSecret = c.epoch, secret
	b, err := appendHello(nil, mine)
	if err == nil {
		_, err = s.conn.Write(b)
	}
	if err != nil {
		c.close(c.gone(err), false)
		return nil, fmt.Errorf("answer hello: %w", err)
	}
	return c, nil
}

// refuse answers a Hello with the reason for the refusal.
func refuse(conn net.Conn, why error) {
	cause := asCause(why, "")
	reason, text := uint32(cause.Reason), cause.Text
	var dup *duplicateError
	switch {
	case errors.As(why, &dup):
		reason, text = closeDuplicate, dup.by
	case errors.Is(why, errSelf):
		reason = closeSelf
	}
	if b, err := appendClose(nil, 0, reason, text); err == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(farewellWait))
		_, _ = conn.Write(b)
	}
}
