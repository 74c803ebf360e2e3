package peer

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// patience bounds every wait; nothing is expected to take a fraction of it.
const patience = time.Minute

// node is a manager with everything that it reported.
type node struct {
	*Manager
	t      testing.TB
	addr   string
	mu     sync.Mutex
	events []transfer.Event
	links  []*transport.Link
	heard  []uint64 // epochs of channels, as a user of links hears of them
	more   chan struct{}
	handle func(transfer.PeerMsg) // instead of keeping messages, guarded by mu
	logged []string               // warnings and errors
}

func (n *node) event(ev transfer.Event) {
	n.mu.Lock()
	if msg, ok := ev.(transfer.PeerMsg); ok && n.handle != nil {
		handle := n.handle
		n.mu.Unlock()
		handle(msg)
		return
	}
	defer n.mu.Unlock()
	if up, ok := ev.(transfer.PeerUp); ok && up.Node != n.cfg.Node && n.cfg.Links != nil && !slices.Contains(n.heard, up.Epoch) {
		n.t.Errorf("%s: the machine hears of channel %d, and those who move bytes did not", n.cfg.Node, up.Epoch)
	}
	n.events = append(n.events, ev)
	close(n.more)
	n.more = make(chan struct{})
}

// onMessage makes f see all messages from now on, in the reader's goroutine.
func (n *node) onMessage(f func(transfer.PeerMsg)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.handle = f
}

// ChannelUp, LinkUp and LinksDown make the node a transport.LinkUser.
func (n *node) ChannelUp(_ string, epoch uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = append(n.heard, epoch)
}

func (n *node) LinkUp(l *transport.Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links = append(n.links, l)
	close(n.more)
	n.more = make(chan struct{})
}

func (n *node) LinksDown(peer string, epoch uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		if l.Peer == peer && l.Epoch == epoch {
			_ = l.Conn.Close()
		}
	}
}

// wait returns the first event, in order, that want accepts; seen are passed over for the next call.
func wait[E transfer.Event](n *node, want func(E) bool) E {
	n.t.Helper()
	var got E
	n.until(func() bool {
		for i, ev := range n.events {
			if e, ok := ev.(E); ok && (want == nil || want(e)) {
				got = e
				n.events = append(n.events[:i:i], n.events[i+1:]...)
				return true
			}
		}
		return false
	})
	return got
}

// until waits for a condition on events and links; it holds the lock while cond runs.
func (n *node) until(cond func() bool) {
	n.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		n.mu.Lock()
		ok, more := cond(), n.more
		n.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-more:
		case <-deadline.C:
			n.mu.Lock()
			defer n.mu.Unlock()
			n.t.Fatalf("%s: waited in vain; left: %#v; logged: %q", n.cfg.Node, n.events, n.logged)
		}
	}
}

type cluster struct {
	t   testing.TB
	dir string
}

func newCluster(t testing.TB) *cluster {
	dir := t.TempDir()
	if err := pki.Init(dir, "test CA", time.Hour); err != nil {
		t.Fatal(err)
	}
	return &cluster{t, dir}
}

// node starts a manager on loopback. change may adjust its configuration.
func (c *cluster) node(name string, change func(*Config)) *node {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	n := &node{t: c.t, addr: l.Addr().String(), more: make(chan struct{})}
	cfg := Config{
		EncryptLoopback: true,
		Node:            name, Incarnation: 1, Version: "test", Listener: l, Advertise: n.addr, Transports: []string{"tcp"}, Streams: 2,
		Nodes: map[string]string{}, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Heartbeat: 10 * time.Second, IdleClose: time.Minute, DialMax: 100 * time.Millisecond, Events: n.event, Links: n,
		young: time.Nanosecond, // tests end channels as soon as they are there, and wait for the next
	}
	if change != nil {
		change(&cfg)
	}
	cfg.Log = slog.New(&warnings{Handler: slog.DiscardHandler, n: n})
	if !cfg.Insecure && cfg.Identity == nil {
		cfg.Identity = c.identity(name)
	}
	if n.Manager, err = New(cfg); err != nil {
		c.t.Fatal(err)
	}
	n.Start()
	c.t.Cleanup(n.Close)
	return n
}

func (c *cluster) identity(name string) *pki.Identity {
	c.t.Helper()
	if err := pki.IssueNode(c.dir, c.dir, name, nil, time.Hour); err != nil {
		c.t.Fatal(err)
	}
	cert, key := pki.NodeFiles(c.dir, name)
	id, err := pki.Open(filepath.Join(c.dir, pki.CAFile), cert, key, name)
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

// warnings keeps what a node warns of.
type warnings struct {
	slog.Handler
	n *node
}

func (w *warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	w.n.mu.Lock()
	defer w.n.mu.Unlock()
	w.n.logged = append(w.n.logged, text)
	close(w.n.more)
	w.n.more = make(chan struct{})
	return nil
}

// warns waits for a warning that contains text.
func (n *node) warns(text string) {
	n.t.Helper()
	n.until(func() bool { return strings.Contains(strings.Join(n.logged, "\n"), text) })
}

// calm fails the test when the node warned of anything.
func (n *node) calm() {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.logged) > 0 {
		n.t.Errorf("%s warned: %q", n.cfg.Node, n.logged)
	}
}

// met waits for the first channel between two nodes, whose names are known.
func met(a, b *node) (epoch uint64) {
	a.t.Helper()
	a.Dial(b.cfg.Node)
	epoch = wait(a, func(e transfer.PeerUp) bool { return len(e.Hints) > 0 }).Epoch
	wait(b, func(e transfer.PeerUp) bool { return e.Epoch == epoch })
	return epoch
}

func (n *node) knows(o *node) { n.Reload(map[string]string{o.cfg.Node: o.addr}, n.cfg.Allow) }

func epochOf(n *node, peer string) uint64 {
	if c := n.channelOf(peer); c != nil {
		return c.epoch
	}
	return 0
}
