// Package config owns kvpiped's settings: one struct that is read strictly from TOML, completed with defaults, and
// checked as a whole. packaging/kvpiped.toml documents every key; a test holds the two together.
package config

import (
	"time"
)

// Config is the whole configuration. What a file leaves out keeps the value that Default gives it.
type Config struct {
	Node      string `toml:"node"`      // this node's name, as in its certificate; default: host name
	Socket    string `toml:"socket"`    // where engines connect
	Group     string `toml:"group"`     // group that may connect; empty: the daemon's own
	Admin     string `toml:"admin"`     // unix socket of the admin API
	Metrics   string `toml:"metrics"`   // host:port of Prometheus metrics and health; "off": none
	Listen    string `toml:"listen"`    // host:port for peers; "off": none
	Advertise string `toml:"advertise"` // host:port that other nodes dial; empty: listen

	Transports []string `toml:"transports"` // allow-list, best first
	Insecure   bool     `toml:"insecure"`   // no TLS; loopback addresses only
	DataPlain  bool     `toml:"data_plain"` // data links between authenticated peers without TLS
	PollMode   string   `toml:"poll_mode"`  // "event" or "busy"
	CPUs       string   `toml:"cpus"`       // CPUs that all threads stay on, "0-3,8"; empty: any
	CRC        string   `toml:"crc"`        // "auto", "on", "off": for what this node sends

	NICAllow []string `toml:"nic_allow"` // names or globs of links and RDMA devices; empty: whatever looks like a NIC
	NICDeny  []string `toml:"nic_deny"`  // likewise; wins over nic_allow
	GIDIndex int      `toml:"gid_index"` // -1: chosen

	TLS      TLS      `toml:"tls"`
	Peers    Peers    `toml:"peers"`
	TCP      TCP      `toml:"tcp"`
	Local    Local    `toml:"local"`
	GPU      GPU      `toml:"gpu"`
	Offers   Offers   `toml:"offers"`
	Limits   Limits   `toml:"limits"`
	Log      Log      `toml:"log"`
	Advanced Advanced `toml:"advanced"`
}

// TLS names the files of the node's identity. They are read again when they change.
type TLS struct {
	CA   string `toml:"ca"`
	Cert string `toml:"cert"`
	Key  string `toml:"key"`
}

// Peers says whom to talk to.
type Peers struct {
	Nodes     map[string]string `toml:"nodes"`      // node name -> host:port
	Allow     []string          `toml:"allow"`      // CIDRs within which an address hint of a client may be dialed
	Heartbeat Duration          `toml:"heartbeat"`  // between heartbeats; a peer silent for three is gone
	IdleClose Duration          `toml:"idle_close"` // how long a channel that this node dialed may be without work before it is closed
	DialMax   Duration          `toml:"dial_max"`   // longest pause between two attempts
}

// TCP configures the tcp transport.
type TCP struct {
	Streams         int      `toml:"streams"`
	EncryptLoopback bool     `toml:"encrypt_loopback"` // TLS on data links also when both ends are loopback addresses
	Spin            Duration `toml:"spin"`             // how long a stream polls before it sleeps; 0s: not at all
	Congestion      string   `toml:"congestion"`       // congestion control of data links, as the kernel names it; "": the system's
}

// GPU configures the search for GPUs.
type GPU struct {
	NVML string `toml:"nvml"` // "auto", "off", or the path of libnvidia-ml.so.1
}

// Local configures the local transport.
type Local struct {
	CopyWorkers int `toml:"copy_workers"`
	Nice        int `toml:"nice"` // of the copy workers
}

// Offers configures leases.
type Offers struct {
	DefaultLease Duration `toml:"default_lease"`
	MaxLease     Duration `toml:"max_lease"`
	OrphanLease  Duration `toml:"orphan_lease"` // how long finished offers outlive an engine that died; 0s: not at all
	OfferWait    Duration `toml:"offer_wait"`   // how long an early take waits for its offer
	Tombstone    Duration `toml:"tombstone"`    // how long an ended key is remembered
}

// Limits bound what clients may use.
type Limits struct {
	Sessions       int  `toml:"sessions"`
	SessionsPerUID int  `toml:"sessions_per_uid"`
	Inflight       int  `toml:"inflight"`       // operations per session
	Offers         int  `toml:"offers"`         // live offers per session
	Pipes          int  `toml:"pipes"`          // open ends of pipes and lookup buffers per engine
	Items          int  `toml:"items"`          // in one pipe or lookup buffer
	BlockIDs       int  `toml:"block_ids"`      // in the operations of a session
	SessionPinned  Size `toml:"session_pinned"` // registered bytes per session
	TotalPinned    Size `toml:"total_pinned"`   // of all sessions
	RingMemory     Size `toml:"ring_memory"`    // bytes of the daemon's memory that the rings of all sessions may take
}

// Log configures logging.
type Log struct {
	Level  string `toml:"level"`  // debug, info, warn, error
	Format string `toml:"format"` // text, json
}

// Advanced holds what few should touch.
type Advanced struct {
	Inline      Size     `toml:"inline"`       // hand-overs of at most this size ride inside control messages
	Window      Size     `toml:"window"`       // bytes posted at a time to a peer; within the node, times copy workers
	Spin        Duration `toml:"spin"`         // poll_mode = "busy": how long the poller spins without work
	FenceGrace  Duration `toml:"fence_grace"`  // how long a completion waits for its fence before it says MORE
	DrainWait   Duration `toml:"drain_wait"`   // how long a stopping daemon lets transfers finish
	GoMaxProcs  int      `toml:"gomaxprocs"`   // 0: chosen from cores, workers and streams
	MemoryLimit Size     `toml:"memory_limit"` // of the Go runtime (GOMEMLIMIT); 0B: none
}

// Default returns what applies where the file is silent.
func Default() Config {
	return Config{
		Socket: "/run/kvpipe/kvpiped.sock", Admin: "/run/kvpipe/admin.sock",
		Metrics: "127.0.0.1:7651", Listen: "[::]:7650",
		Transports: []string{"local", "tcp"}, PollMode: "event", CRC: "auto", GIDIndex: -1,
		Peers: Peers{Heartbeat: Duration(time.Second), IdleClose: Duration(10 * time.Minute), DialMax: Duration(5 * time.Second)},
		TCP:   TCP{Streams: 2, Spin: Duration(60 * time.Microsecond)},
		Local: Local{CopyWorkers: 2, Nice: 10},
		GPU:   GPU{NVML: "auto"},
		Offers: Offers{
			DefaultLease: Duration(30 * time.Second), MaxLease: Duration(10 * time.Minute), OrphanLease: Duration(30 * time.Second),
			OfferWait: Duration(30 * time.Second), Tombstone: Duration(60 * time.Second),
		},
		Limits: Limits{Sessions: 1024, SessionsPerUID: 512, Inflight: 4096, Offers: 4096, Pipes: 256, Items: 1 << 18, BlockIDs: 64 << 20, SessionPinned: 1 << 40, TotalPinned: 4 << 40, RingMemory: 18 << 30},
		Log:    Log{Level: "info", Format: "text"},
		Advanced: Advanced{
			Inline: 32 << 10, Window: 16 << 20, Spin: Duration(20 * time.Millisecond),
			FenceGrace: Duration(100 * time.Millisecond), DrainWait: Duration(10 * time.Second), MemoryLimit: 512 << 20,
		},
	}
}
