package session

import (
	"log/slog"
	"time"

	"github.com/kvpipe/kvpipe/daemon/memory"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Config is what New needs.
type Config struct {
	Node      string // this node's name; required
	Advertise string // "host:port" that other nodes dial, or ""
	Version   string // of the daemon
	Epoch     uint32 // daemon incarnation, different at every start; required

	// Events takes what happened. It never blocks. It may be called from any goroutine, also from within the methods of
	// Server, and keeps the order of calls from one goroutine. Required.
	Events func(transfer.Event)
	// Queue and Flush, when both are given, replace Events while submissions are read. Queue may hold events back until
	// Flush, which the same goroutine calls soon after, without locks.
	Queue func(transfer.Event)
	Flush func()
	// After calls f once everything queued so far has been handled, after the next Flush. It does not block. nil: at
	// once.
	After func(f func())

	Limits   Limits
	PollMode string        // "event" (or "") or "busy"
	Spin     time.Duration // busy: how long to look at idle rings before sleeping; 0: 20 ms
	Greeting time.Duration // how long a connection may say nothing; 0: 5 s
	Patience time.Duration // how long a client may leave answers unread; 0: 5 s
	Log      *slog.Logger  // nil: none
	ABI      [2]uint32     // oldest and newest ring protocol; zero: ring's. Others are for tests of neighbouring versions
	State    string        // file in which sessions are remembered for the next daemon; "": none
	Await    time.Duration // how long to wait for sessions of the previous daemon; 0: 10 s
	ProcRoot string        // "": /proc
}

// Limits bound what clients may use. Zero means the default, which each field names.
type Limits struct {
	Sessions       int    // 1024
	SessionsPerUID int    // 512
	Inflight       int    // unreleased operations of a session, at most a third of its cq_entries; 4096
	BlockIDs       int    // in what a session submitted, as the machine counts it; 64 Mi
	Items          int    // of a pipe or lookup buffer, as the machine counts them; 262144
	SessionPinned  uint64 // registered bytes of a session; 1 TiB
	TotalPinned    uint64 // registered bytes of all sessions; 4 TiB
	RingMemory     uint64 // for the rings of all sessions; one owner may have half of it; 18 GiB
}

// Limits that the header has, and of what HELLO may ask for.
const (
	maxKey         = 256
	minToken       = 16
	maxToken       = 32
	maxContent     = 64
	maxTrace       = 64
	maxPeer        = 255
	maxRegions     = 1024
	maxInflight    = 4096
	maxConsumers   = 256
	maxEntries     = 1 << 16
	maxArena       = 64 << 20
	maxWorld       = 1 << 16
	defaultSQ      = 1024
	defaultCQ      = 4096
	defaultArena   = 8 << 20
	defaultLayers  = 1024
	helloTimeout   = 5 * time.Second
	byeTimeout     = time.Second
	leaveTimeout   = 100 * time.Millisecond
	unregisterWait = 5 * time.Second
)

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.Sessions, 1024)
	def(&l.SessionsPerUID, 512)
	def(&l.Inflight, maxInflight)
	def(&l.BlockIDs, 64<<20)
	def(&l.Items, 1<<18)
	l.Inflight = min(l.Inflight, maxInflight)
	if l.SessionPinned == 0 {
		l.SessionPinned = 1 << 40
	}
	if l.TotalPinned == 0 {
		l.TotalPinned = 4 << 40
	}
	if l.RingMemory == 0 {
		l.RingMemory = 18 << 30
	}
	return l
}

func (l Limits) memory(mapped int) memory.Limits {
	return memory.Limits{SessionBytes: l.SessionPinned, TotalBytes: l.TotalPinned, Regions: maxRegions, Mapped: mapped}
}

func (c Config) withDefaults() Config {
	c.Limits = c.Limits.withDefaults()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.ProcRoot == "" {
		c.ProcRoot = sys.ProcRoot
	}
	if c.Queue == nil || c.Flush == nil {
		c.Queue, c.Flush = c.Events, func() {}
	}
	if c.After == nil {
		c.After = func(f func()) { f() }
	}
	if c.Greeting == 0 {
		c.Greeting = helloTimeout
	}
	if c.Patience == 0 {
		c.Patience = 5 * time.Second
	}
	if c.ABI == [2]uint32{} {
		c.ABI = [2]uint32{ring.ABIMin, ring.ABI}
	}
	if c.Await == 0 {
		c.Await = 10 * time.Second
	}
	if c.Spin == 0 {
		c.Spin = 20 * time.Millisecond
	}
	return c
}
