// Package peer owns the channels between daemons: who may be talked to, how they authenticate, one channel for each
// pair of nodes with its epoch and heartbeat, and the data links that belong to it. What travels in a channel is the
// transfer machine's business.
package peer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/internal/damper"
	"github.com/kvpipe/kvpipe/internal/reuse"
)

// Protocol versions of peer.proto that this daemon speaks.
const (
	ProtoMin = 1
	ProtoMax = 1
)

// Config is what New needs.
type Config struct {
	Node            string
	Incarnation     uint64
	Version         string
	Listener        net.Listener  // nil: only dial
	Advertise       string        // host:port that others dial
	Identity        *pki.Identity // nil with Insecure
	Insecure        bool          // no TLS; loopback addresses only, both ways
	DataPlain       bool          // data links without TLS if the other side says so, too
	EncryptLoopback bool          // data links with TLS even when both ends are loopback addresses
	Transports      []string      // names; the other side may choose only these
	// Proto is the oldest and the newest version of peer.proto to speak; zero: ProtoMin and ProtoMax. Tests of
	// neighbouring versions set others.
	Proto     [2]uint32
	Streams   int // data links per channel; 0 when no transport needs them
	Nodes     map[string]string
	Allow     []netip.Prefix
	Heartbeat time.Duration // a peer silent for three of them is gone; 0: one second
	IdleClose time.Duration // 0: never
	// Busy says whether something is under way with a node of which its channel hears nothing: bytes move, or somebody
	// waits for them. It is asked before an idle channel is closed, and may take until ctx ends. nil: nothing ever is.
	Busy    func(ctx context.Context, node string) bool
	DialMax time.Duration // longest pause between two attempts

	// Events takes events. It must never block nor run the machine: it is called with locks held.
	Events func(transfer.Event)
	// Queue takes messages instead of Events. It may hold them back until Flush, which may run the machine. nil:
	// Events.
	Queue func(transfer.Event)
	Flush func()
	// After calls f once everything queued so far has been handled, after the next Flush. It does not block. nil: at
	// once.
	After func(f func())

	Payloads   *reuse.Buffers     // where the payloads of grants get their buffers; nil: each is new
	Links      transport.LinkUser // nil: no links
	Congestion string             // congestion control of links; "": the system's
	Rails      Rails              // nil: links go where their channel goes
	// Transport names the transport that serves a node that is up; "": none. nil: the log does not name it.
	Transport func(node string, barred func(transport string) string) string
	Log       *slog.Logger

	// The rest is for tests.

	late  time.Duration // how long a message that nobody waits for may wait for others; 0: lateWait
	young time.Duration // a dialed channel that ends younger is a failure of its address; 0: youth, or IdleClose if less
	// unheard is how long a data link may go unanswered, and how long a peer may read nothing of what waits for it. 0:
	// the longer of unheardLeast and silences heartbeats.
	unheard  time.Duration
	greeting time.Duration // how long a connection may take to say who it is; 0: dialTimeout
	machine  []byte        // name of the machine that this daemon is on; nil: machine()
	lookUp   func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Manager owns all channels. Any goroutine may call its methods. Dial and Send never block.
type Manager struct {
	cfg    Config
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	born   time.Time

	refusals  refusals
	harmless  refusals    // those of little interest: they take no room in the log from the others
	malformed damper.Each // by node
	wayless   damper.Each // by node
	linkless  damper.Each // by node
	lossy     damper.Each // by node
	namesakes damper.Each // by node
	rough     rough
	suspect   chan struct{} // wakes the judge
	judged    atomic.Int64  // clock: when it was last called

	mu       sync.Mutex
	closed   bool
	nodes    map[string]string // by name, as configured
	allow    []netip.Prefix
	reloaded chan struct{}       // closed when nodes and allow are replaced
	channels map[string]*channel // by node
	lost     map[string]uint64   // by node: epoch of its last channel that is known to be over
	met      map[string]*history // by node
	dialing  map[target]*dial
	greeting map[string]chan struct{} // by node: an attempt is between Hello and answer
	pace     map[string]*backoff      // by address, forbidden address, or address at which another node answers
	stats    Stats

	lying struct { // channels with messages from Queue
		sync.Mutex
		on []*channel
	}
}

// New returns a manager; Start makes it listen.
func New(cfg Config) (*Manager, error) {
	if cfg.Insecure && cfg.Listener != nil && !transport.Loopback(cfg.Listener.Addr()) {
		return nil, fmt.Errorf("insecure works on loopback addresses alone, not on %s", cfg.Listener.Addr())
	}
	if !cfg.Insecure && cfg.Identity == nil && cfg.Listener != nil {
		return nil, fmt.Errorf("a listener for peers needs certificates")
	}
	if cfg.Queue == nil || cfg.Flush == nil {
		cfg.Queue, cfg.Flush = cfg.Events, func() {}
	}
	if cfg.After == nil {
		cfg.After = func(f func()) { f() }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Heartbeat <= 0 {
		cfg.Heartbeat = time.Second
	}
	if cfg.Busy == nil {
		cfg.Busy = func(context.Context, string) bool { return false }
	}
	if cfg.late <= 0 {
		cfg.late = lateWait
	}
	if cfg.greeting <= 0 {
		cfg.greeting = dialTimeout
	}
	if cfg.machine == nil {
		cfg.machine = machine()
	}
	if cfg.lookUp == nil {
		cfg.lookUp = lookUp
	}
	if cfg.young <= 0 {
		if cfg.young = youth; cfg.IdleClose > 0 {
			cfg.young = min(youth, cfg.IdleClose)
		}
	}
	if cfg.unheard <= 0 {
		cfg.unheard = max(unheardLeast, silences*cfg.Heartbeat)
	}
	if cfg.Links == nil {
		cfg.Streams = 0
	}
	if cfg.Proto == [2]uint32{} {
		cfg.Proto = [2]uint32{ProtoMin, ProtoMax}
	}
	m := &Manager{
		cfg: cfg, log: cfg.Log, born: time.Now(), nodes: cfg.Nodes, allow: unmapped(cfg.Allow),
		channels: map[string]*channel{}, lost: map[string]uint64{}, met: map[string]*history{}, dialing: map[target]*dial{}, greeting: map[string]chan struct{}{}, pace: map[string]*backoff{},
	}
	m.suspect, m.reloaded = make(chan struct{}, 1), make(chan struct{})
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// clock returns the manager's own time: nanoseconds since it was made, independent of the wall clock.
func (m *Manager) clock() int64 { return int64(time.Since(m.born)) }

// Start begins to accept connections, and to judge channels.
func (m *Manager) Start() {
	if m.cfg.Identity != nil {
		m.wg.Go(m.judge)
	}
	if m.cfg.Listener != nil {
		m.wg.Go(m.accept)
	}
}

// Close says goodbye on all channels, ends them and their links, and waits for their goroutines. Link users see
// LinksDown first.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	if m.cfg.Listener != nil {
		_ = m.cfg.Listener.Close()
	}
	why := transfer.Cause{Reason: transfer.Unavailable, Text: fmt.Sprintf("daemon of node %q is shutting down", m.cfg.Node)}
	var all sync.WaitGroup
	for _, c := range m.all() {
		all.Go(func() { c.close(why, true) })
	}
	all.Wait() // first, or a reader that the cancellation stops closes its channel without a goodbye
	m.cancel()
	m.wg.Wait()
}

// Reload replaces the names and networks that may be dialed. Open channels stay; their links move to where they may go
// now. An attempt that rests before it dials goes to the node's new address, and one that rests because its address was
// forbidden is made at once.
func (m *Manager) Reload(nodes map[string]string, allow []netip.Prefix) {
	m.replace(nodes, unmapped(allow))
	for _, c := range m.all() {
		c.spreadAgain()
	}
}

func (m *Manager) replace(nodes map[string]string, allow []netip.Prefix) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes, m.allow = nodes, allow
	maps.DeleteFunc(m.pace, func(key string, _ *backoff) bool { return strings.HasSuffix(key, notAllowed) })
	close(m.reloaded)
	m.reloaded = make(chan struct{})
}

// Send sends a message on the node's channel if it still has that epoch.
func (m *Manager) Send(node string, epoch uint64, msg transfer.Msg) {
	if c := m.channelOf(node); c != nil && c.epoch == epoch {
		c.send(msg)
	}
}

// Secure says whether the node has a channel of that epoch on which it proved who it is.
func (m *Manager) Secure(node string, epoch uint64) bool {
	c := m.channelOf(node)
	return c != nil && c.epoch == epoch && !m.cfg.Insecure
}

// Barred says why the node at the other end of a channel does not allow a transport: the list in its Hello does not
// have it. "": the node allows it, or gave no list.
func (m *Manager) Barred(node, transport string) (why string) {
	if c := m.channelOf(node); c != nil {
		return c.barred(transport)
	}
	return ""
}

func (c *channel) barred(transport string) string {
	if theirs := c.hello.Transports; len(theirs) > 0 && !slices.Contains(theirs, transport) {
		return fmt.Sprintf("not on the allow-list of node %q (transports = %q there)", c.node, theirs)
	}
	return ""
}

// Queue is Send that may hold the message back until Flush: several messages that go out together cost little more than
// one.
func (m *Manager) Queue(node string, epoch uint64, msg transfer.Msg, more bool) {
	c := m.channelOf(node)
	if c == nil || c.epoch != epoch || !c.enqueue(msg, more) {
		return
	}
	m.lying.Lock()
	if !slices.Contains(m.lying.on, c) {
		m.lying.on = append(m.lying.on, c)
	}
	m.lying.Unlock()
}

// Flush sends what Queue held back.
func (m *Manager) Flush() {
	m.lying.Lock()
	defer m.lying.Unlock()
	for _, c := range m.lying.on {
		c.push()
	}
	clear(m.lying.on)
	m.lying.on = m.lying.on[:0]
}

func (m *Manager) channelOf(node string) *channel {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.channels[node]
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
