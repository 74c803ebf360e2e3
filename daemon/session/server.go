package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvpipe/kvpipe/daemon/memory"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/damper"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Server serves the local clients of a node. Its methods are safe for concurrent use and never block on a client, unless
// they say so.
type Server struct {
	cfg   Config
	pool  *memory.Pool
	start time.Time

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	lobby     lobby         // connections that have not said HELLO yet
	refusals  damper.Each   // by user and reason
	unsaved   damper.Damper // of the state
	unshrunk  damper.Damper // memory of ended sessions
	comings   comings
	perUID    map[uint32]int // sessions
	total     int
	rings     ringMemory
	wary      wary   // users whose clients are woken apart
	next      uint32 // session counter
	engines   registry
	state     *state
	limits    Limits
	most      most
	draining  bool
	closed    bool

	sessions atomic.Pointer[table] // replaced, never changed
	orphans  sync.Map              // *session by id: ended ones of which only memory is left. There may be many more than open ones
	unrung   []*session            // sessions with completions since the last Ring; only the driver uses it

	stop    chan struct{}  // closed by Close
	forced  chan struct{}  // closed by Close: sessions no longer wait for the driver
	served  sync.WaitGroup // sessions
	conns   sync.WaitGroup // connections, which may outlast their sessions
	exits   *exits
	gone    chan struct{}  // closed when all sessions are gone
	helpers sync.WaitGroup // watch and poller
	poke    chan struct{}  // the watch has something to look at
	busy    *poller        // nil: "event"
}

// table holds all sessions, except those of which only memory is left.
type table struct {
	byID map[transfer.SessionID]*session
	list []*session // in the order in which they came
}

// New returns a server that serves nobody until Serve. End it with Close.
func New(cfg Config) (*Server, error) {
	if cfg.Node == "" || cfg.Epoch == 0 || cfg.Events == nil {
		return nil, errors.New("session: Node, Epoch and Events are required")
	}
	if len(cfg.Node) >= 256 || len(cfg.Advertise) >= 128 || len(cfg.Version) >= 64 {
		return nil, fmt.Errorf("session: node %q, advertise %q or version %q is too long: the limits are 255, 127 and 63 bytes", cfg.Node, cfg.Advertise, cfg.Version)
	}
	cfg = cfg.withDefaults()
	v := &Server{
		cfg: cfg, limits: cfg.Limits, start: time.Now(),
		pool:      memory.NewPool(cfg.Limits.memory(maxMapped(cfg.ProcRoot))),
		listeners: map[net.Listener]struct{}{},
		perUID:    map[uint32]int{},
		engines:   newRegistry(),
		stop:      make(chan struct{}),
		forced:    make(chan struct{}),
		gone:      make(chan struct{}),
		exits:     newExits(),
		poke:      make(chan struct{}, 1),
	}
	v.sessions.Store(&table{})
	v.most.raise(cfg.Limits)
	var err error
	if v.state, err = loadState(cfg.State); v.state == nil {
		return nil, fmt.Errorf("session: %w", err)
	} else if err != nil {
		cfg.Log.Warn("broken state file", "error", err)
	}
	v.engines.Expect(v.state.roster)
	switch cfg.PollMode {
	case "", "event":
	case "busy":
		v.busy = newPoller(v)
		v.helpers.Go(v.busy.run)
	default:
		return nil, fmt.Errorf("session: poll_mode is %q: must be \"event\" or \"busy\"", cfg.PollMode)
	}
	v.helpers.Go(v.watch)
	v.helpers.Go(v.awaitReturn)
	return v, nil
}

// Serve accepts connections on l, a unix socket that it takes over, until Close, and then returns nil. It may run for
// several listeners at once.
func (v *Server) Serve(l net.Listener) error {
	defer l.Close()
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return nil
	}
	v.listeners[l] = struct{}{}
	v.mu.Unlock()
	if c, ok := l.(syscall.Conn); ok {
		_ = sys.PassRights(c, false) // only sessions may send descriptors; older kernels cannot refuse them
	}
	defer func() {
		v.mu.Lock()
		delete(v.listeners, l)
		v.mu.Unlock()
	}()
	var told damper.Damper
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			v.accept(conn.(*net.UnixConn))
		case errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, syscall.ECONNABORTED):
			// The client went while it was queued.
		case scarce(err), errors.Is(err, fs.ErrPermission):
			// It stays queued until somebody goes, or a security module's policy changes.
			if told.Due() {
				v.cfg.Log.Warn("connections of clients cannot be accepted", "error", err)
			}
			select {
			case <-v.stop:
				return nil
			case <-time.After(100 * time.Millisecond):
			}
		default:
			return fmt.Errorf("accept session: %w", err)
		}
	}
}

// find returns the session, or nil when it is gone.
func (v *Server) find(id transfer.SessionID) *session {
	s := v.sessions.Load().byID[id]
	if s == nil {
		if orphan, ok := v.orphans.Load(id); ok {
			s = orphan.(*session)
		}
	}
	return s
}

// all returns the sessions; the slice is never changed.
func (v *Server) all() []*session { return v.sessions.Load().list }

// change replaces the table of sessions: it adds add and removes remove. The caller holds mu.
func (v *Server) change(add, remove *session) {
	next := &table{byID: map[transfer.SessionID]*session{}}
	for _, s := range v.all() {
		if s != remove {
			next.list = append(next.list, s)
		}
	}
	if add != nil {
		next.list = append(next.list, add)
	}
	for _, s := range next.list {
		next.byID[s.id] = s
	}
	v.sessions.Store(next)
}

// Resolve returns the bytes of a run in a session's region. ok is false if there is no such region or it is smaller.
// The bytes stay mapped until SessionDrained or RegionDrained.
func (v *Server) Resolve(id transfer.SessionID, r plan.Run) (b []byte, ok bool) {
	s := v.find(id)
	if s == nil {
		return nil, false
	}
	return s.mem.Resolve(r.Region, r.Off, r.Len)
}

// SetLimits changes what new sessions and registrations may use.
func (v *Server) SetLimits(l Limits) {
	l = l.withDefaults()
	v.mu.Lock()
	v.limits = l
	v.most.raise(l)
	v.mu.Unlock()
	v.pool.SetLimits(l.memory(v.pool.Limits().Mapped))
}

// inflight returns how many operations a new session may have.
func (v *Server) inflight() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.limits.Inflight
}

// ringLimit returns how many bytes the rings of all sessions may take.
func (v *Server) ringLimit() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.limits.RingMemory
}

// Drain refuses new sessions. Those that exist go on.
func (v *Server) Drain() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.draining = true
}

// EndAll ends all sessions and waits until they are drained or ctx ends. Draining needs the driver to run.
func (v *Server) EndAll(ctx context.Context, cause transfer.Cause) error {
	v.Drain()
	all := v.all()
	for _, s := range all {
		s.end(cause)
	}
	for _, s := range all {
		select {
		case <-s.over:
		case <-ctx.Done():
			return fmt.Errorf("end sessions: session %d is not drained: %w", s.id, ctx.Err())
		}
	}
	return nil
}

// Close stops serving and unmaps everything, without waiting for the driver: call it when no transport touches any
// memory and no other method is being called. It returns when all goroutines have ended; for those that are held up in
// closing what clients sent, it waits at most closeWait. Closing again does nothing.
func (v *Server) Close() error {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		v.helpers.Wait()
		return nil
	}
	v.closed, v.draining = true, true
	for l := range v.listeners {
		_ = l.Close()
	}
	for _, n := range v.lobby.list {
		_ = n.conn.SetDeadline(past)
	}
	close(v.stop)
	close(v.forced)
	v.mu.Unlock()
	for _, s := range v.all() {
		s.end(transfer.Cause{Reason: transfer.Unavailable, Text: "the daemon stopped: connect again when it is back"})
	}
	v.served.Wait()
	close(v.gone)
	v.helpers.Wait()
	ended := make(chan struct{})
	go func() {
		v.conns.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeWait):
		v.cfg.Log.Warn("descriptors that clients sent do not close: the end of the process closes them")
	}
	return nil
}
