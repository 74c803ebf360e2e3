// Package peer owns the channels between daemons: who may be talked to, how they authenticate, one channel for each
// pair of nodes with its epoch and heartbeat, and the data links that belong to it. What travels in a channel is the
// transfer machine's business.
package peer

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// Protocol versions of peer.proto that this daemon speaks.
const (
	ProtoMin = 1
	ProtoMax = 1
)

// Config is what New needs.
type Config struct {
	Node        string
	Incarnation uint64
	Version     string
	Listener    net.Listener  // nil: only dial
	Advertise   string        // host:port that others dial
	Identity    *pki.Identity // nil with Insecure
	Insecure    bool          // no TLS; loopback addresses only, both ways
	DataPlain   bool          // data links without TLS, when both sides say so
	Transports  []string      // names, for the other side's explain
	Streams     int           // data links per channel; 0 when no transport needs them
	Nodes       map[string]string
	Allow       []netip.Prefix
	Heartbeat   time.Duration // a peer silent for three of them is gone
	IdleClose   time.Duration
	DialMax     time.Duration
	Events      func(transfer.Event) // never blocks
	Queue       func(transfer.Event) // with Flush, instead of Events for messages: may leave them lying until Flush; nil: Events
	Flush       func()
	Links       transport.LinkUser // nil: no links
	Log         *slog.Logger
}

// Manager owns all channels. Its methods may be called from any goroutine; Dial and Send never block.
type Manager struct {
	cfg    Config
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	nodes    map[string]string // configured
	allow    []netip.Prefix
	channels map[string]*channel // by node
	lost     map[string]uint64   // node -> epoch of the last channel, known to be over
	dialing  map[string]*dial    // by address
	pace     map[string]*backoff // by address
	stats    Stats
}

// Stats counts since the start.
type Stats struct {
	Opened, Refused, Malformed, Reconnects, Duplicates uint64
}

// New returns a manager; Start makes it listen.
func New(cfg Config) (*Manager, error) {
	if cfg.Insecure && cfg.Listener != nil && !loopbackAddr(cfg.Listener.Addr()) {
		return nil, fmt.Errorf("insecure works on loopback addresses alone, not on %s", cfg.Listener.Addr())
	}
	if !cfg.Insecure && cfg.Identity == nil && cfg.Listener != nil {
		return nil, fmt.Errorf("a listener for peers needs certificates")
	}
	if cfg.Queue == nil || cfg.Flush == nil {
		cfg.Queue, cfg.Flush = cfg.Events, func() {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{
		cfg: cfg, log: cfg.Log, nodes: cfg.Nodes, allow: cfg.Allow,
		channels: map[string]*channel{}, lost: map[string]uint64{}, dialing: map[string]*dial{}, pace: map[string]*backoff{},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// Start begins to accept.
func (m *Manager) Start() {
	if m.cfg.Listener == nil {
		return
	}
	m.wg.Add(1)
	go func() { defer m.wg.Done(); m.accept() }()
}

// Close ends all channels and links and waits for their goroutines. Link users see LinksDown first.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	if m.cfg.Listener != nil {
		_ = m.cfg.Listener.Close()
	}
	for _, c := range m.all() {
		c.close(transfer.Cause{Reason: transfer.Unavailable, Text: fmt.Sprintf("daemon of node %q is shutting down", m.cfg.Node)}, true)
	}
	m.wg.Wait()
}

// Reload replaces the names and networks that may be dialed. Channels that are open stay.
func (m *Manager) Reload(nodes map[string]string, allow []netip.Prefix) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes, m.allow = nodes, allow
}

// Send queues a message on the node's channel if it still has that epoch.
func (m *Manager) Send(node string, epoch uint64, msg transfer.Msg) {
	m.mu.Lock()
	c := m.channels[node]
	m.mu.Unlock()
	if c != nil && c.epoch == epoch {
		c.send(msg)
	}
}

func (m *Manager) all() []*channel {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*channel, 0, len(m.channels))
	for _, c := range m.channels {
		out = append(out, c)
	}
	return out
}

// Status is one peer, for people and metrics.
type Status struct {
	Node        string
	Address     string // "" unknown
	State       string // "up", "dialing", "down"
	Epoch       uint64
	Incarnation uint64
	Version     string
	Proto       uint32
	Advertise   string
	Dialed      bool // by this node
	Secure      bool
	DataPlain   bool
	Links       int
	Transports  []string
	Since       time.Time
	RTT         time.Duration
	Problem     string // the last failure
}

// Snapshot lists configured and connected peers, in no order.
func (m *Manager) Snapshot() ([]Status, Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Status
	for _, c := range m.channels {
		out = append(out, c.status())
	}
	for name, addr := range m.nodes {
		if m.channels[name] != nil || name == m.cfg.Node {
			continue
		}
		s := Status{Node: name, Address: addr, State: "down"}
		if m.dialing[addr] != nil {
			s.State = "dialing"
		}
		if p := m.pace[addr]; p != nil {
			s.Problem = p.problem
		}
		out = append(out, s)
	}
	return out, m.stats
}

func (m *Manager) count(f func(*Stats)) {
	m.mu.Lock()
	f(&m.stats)
	m.mu.Unlock()
}

// secure wraps a connection for one of the two roles and says which node is at the other end ("" when insecure).
func (m *Manager) secure(ctx context.Context, conn net.Conn, client bool, proto string) (net.Conn, string, error) {
	if m.cfg.Insecure {
		return conn, "", nil
	}
	var t *tls.Conn
	if client {
		t = tls.Client(conn, m.cfg.Identity.Config(proto))
	} else {
		t = tls.Server(conn, m.cfg.Identity.Config(alpnControl, alpnData))
	}
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, "", fmt.Errorf("TLS handshake: %w", err)
	}
	node, err := pki.PeerNode(t.ConnectionState())
	return t, node, err
}

func loopbackAddr(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}
