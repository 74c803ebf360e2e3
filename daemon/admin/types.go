// Package admin is the daemon's control interface: HTTP+JSON over a unix socket for kvpipectl and other programs, described by
// openapi.json. It knows no part of the daemon: a Source answers for it.
package admin

import (
	"context"
	"time"

	"github.com/kvpipe/kvpipe/discovery/topology"
)

// Source is what the daemon lets be seen and done. All methods may be called from any goroutine and return within ctx.
type Source interface {
	Status(ctx context.Context) (Status, error)
	Peers(ctx context.Context) ([]Peer, error)
	Sessions(ctx context.Context) ([]Session, error)
	Regions(ctx context.Context) ([]Region, error)
	Offers(ctx context.Context) ([]Offer, error)
	Transfers(ctx context.Context) ([]Transfer, error)
	// Pipes lists pipes and lookup buffers; never what is in them.
	Pipes(ctx context.Context) ([]Pipe, error)
	// GPUs lists this node's GPUs, or says why there are none.
	GPUs(ctx context.Context) (GPUs, error)
	// Topology says how GPUs, NICs and memory hang together, and which threads run where.
	Topology(ctx context.Context) (Topology, error)
	// NICs lists network links and RDMA devices, and what data links use of them.
	NICs(ctx context.Context) (NICs, error)
	// Explain says which transport serves a peer ("" or the own name: this node) and why no better one does.
	Explain(ctx context.Context, peer string) (Explain, error)
	// Bench measures what each allowed transport moves from a peer to this node, with the daemons' own memory, and
	// reports rows as they come.
	Bench(ctx context.Context, peer string, o BenchOptions, row func(BenchRow)) error
	Drain(ctx context.Context) error
}

// Status is the daemon in a few lines.
type Status struct {
	Node        string       `json:"node"`
	Version     string       `json:"version"`
	Incarnation string       `json:"incarnation"`
	Epoch       uint32       `json:"epoch"`
	State       string       `json:"state"` // "running", "draining"
	Started     time.Time    `json:"started"`
	Uptime      float64      `json:"uptime_seconds"`
	Socket      string       `json:"socket"`
	Listen      string       `json:"listen"`
	Advertise   string       `json:"advertise"`
	Metrics     string       `json:"metrics"`
	Insecure    bool         `json:"insecure"`
	DataPlain   bool         `json:"data_plain"`
	PollMode    string       `json:"poll_mode"`
	Transports  []string     `json:"transports"`
	Warnings    []string     `json:"warnings"` // insecure, data_plain, a certificate near its end, ...
	Certificate *Certificate `json:"certificate,omitempty"`
	Counts      Counts       `json:"counts"`
	NICs        int          `json:"nics"` // over which data links may go
	Pinned      uint64       `json:"pinned_bytes"`
	Limits      []Limit      `json:"limits"`         // of all sessions together
	Orphaned    uint64       `json:"orphaned_bytes"` // of the pinned ones, left by ended sessions: of dead engines under finished offers, of senders under items
	Moved       uint64       `json:"moved_bytes"`    // by takes and gets that are done, and by takes that failed only for want of some blocks
	GPUs        GPUSummary   `json:"gpus"`
	Placement   string       `json:"placement"`  // of copies on NUMA nodes: "on, 2 NUMA nodes", or "off" and why
	Congestion  string       `json:"congestion"` // congestion control of data links, as the kernel names it: "cubic"; "": not known
}

// Counts says how many of each there are now.
type Counts struct {
	Engines        int `json:"engines"`
	HoldsExclusive int `json:"holds_exclusive"` // by transfers
	HoldsShared    int `json:"holds_shared"`
	Offers         int `json:"offers"`
	Orphaned       int `json:"orphaned"` // ended sessions whose memory stays under finished offers or items
	Parked         int `json:"parked"`
	Peers          int `json:"peers"`
	PeersUp        int `json:"peers_up"`
	Regions        int `json:"regions"`
	Seeking        int `json:"seeking"` // gets of pipes and lookup buffers that wait for an item
	Sessions       int `json:"sessions"`
	Transfers      int `json:"transfers"` // without those that have ended
}

// Certificate is the node's own certificate.
type Certificate struct {
	File    string    `json:"file"`
	Until   time.Time `json:"until,omitzero"` // zero: there is none to use, Problem says why
	CA      string    `json:"ca,omitempty"`   // its CA, if that ends no later, and the certificate with it
	Problem string    `json:"problem,omitempty"`
}

// Peer is another node.
type Peer struct {
	Node       string   `json:"node"`
	Address    string   `json:"address"`
	State      string   `json:"state"` // "up", "dialing", "down"; down without a Problem: idle
	Epoch      uint64   `json:"epoch,string"`
	Version    string   `json:"version"`
	Protocol   uint32   `json:"protocol"`
	Dialed     bool     `json:"dialed"` // by this node
	Secure     bool     `json:"secure"`
	DataPlain  bool     `json:"data_plain"`
	WhyPlain   string   `json:"data_plain_reason"` // "insecure", "data_plain", "loopback"; "" not plain
	Links      int      `json:"links"`
	Streams    []Stream `json:"streams"` // those links
	Transports []string `json:"transports"`
	Transport  string   `json:"transport"` // chosen; "" none
	RTT        float64  `json:"rtt_seconds"`
	GBps       float64  `json:"gbps"`     // the larger of in and out
	GBpsIn     float64  `json:"gbps_in"`  // measured rate of what came from the peer lately; 0: unknown
	GBpsOut    float64  `json:"gbps_out"` // of what was sent to the peer lately
	Age        float64  `json:"age_seconds"`
	Problem    string   `json:"problem,omitempty"`
}

// Session is one engine's connection.
type Session struct {
	ID          string  `json:"id"` // as in logs: hexadecimal
	Engine      string  `json:"engine"`
	Instance    string  `json:"instance"`
	Role        string  `json:"role"`
	Rank        *uint32 `json:"rank,omitempty"`
	PID         int     `json:"pid"`
	UID         int     `json:"uid"`
	Age         float64 `json:"age_seconds"`
	Regions     int     `json:"regions"`
	Pinned      uint64  `json:"pinned_bytes"`
	Operations  int     `json:"operations"`
	Progress    uint64  `json:"progress"`
	Submitted   uint64  `json:"submitted"`
	Completed   uint64  `json:"completed"`
	Uncollected int     `json:"uncollected"` // completions that wait in its ring
	Limits      []Limit `json:"limits"`      // of this session
}

// Limit is a limit of the configuration and how much of it is used, in numbers or bytes.
type Limit struct {
	Key   string `json:"key"` // "limits.offers"
	Used  uint64 `json:"used"`
	Limit uint64 `json:"limit"`
}

// Region is registered memory.
type Region struct {
	ID      string `json:"id"`      // hexadecimal
	Session string `json:"session"` // its id
	Engine  string `json:"engine"`
	Kind    string `json:"kind"`
	Bytes   uint64 `json:"bytes"`
	Invalid bool   `json:"invalid"` // without memory for now: its engine sleeps
	// Nodes says on which NUMA nodes the region lies, by a sample of its pages. Empty: the kernel does not say.
	Nodes []Share `json:"numa_nodes"`
}

// Share is how many pages of a sample lie on a NUMA node.
type Share struct {
	Node  int `json:"node"`
	Pages int `json:"pages"`
}

// Offer is a key under which blocks can be taken.
type Offer struct {
	Key       string  `json:"key"`
	Engine    string  `json:"engine"`
	State     string  `json:"state"` // "joining", "open", "sealed", "orphaned" (its engine died)
	Tokens    uint32  `json:"tokens"`
	Blocks    int     `json:"blocks"`
	Sealed    bool    `json:"sealed"`
	Consumers int     `json:"consumers"`
	Consumed  int     `json:"consumed"`
	Lease     float64 `json:"lease_seconds"` // left
	Age       float64 `json:"age_seconds"`
	Trace     string  `json:"trace,omitempty"`
}

// Transfer is one end of a take that has met its offer, or waits for it.
type Transfer struct {
	ID        string  `json:"id"`
	End       string  `json:"end"` // "producer", "consumer"
	State     string  `json:"state"`
	Key       string  `json:"key"`
	Engine    string  `json:"engine"`
	Peer      string  `json:"peer"`
	Transport string  `json:"transport"`
	Bytes     uint64  `json:"bytes"`
	Moved     uint64  `json:"moved_bytes"`
	Deadline  float64 `json:"deadline_seconds"` // left
	Age       float64 `json:"age_seconds"`
	Trace     string  `json:"trace,omitempty"`
}

// Pipe is a pipe or a lookup buffer: its home, or this node's ends of one whose home is elsewhere.
type Pipe struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`  // "pipe", "buffer"
	Home      string `json:"home"`  // node of its sender or owner; "": none has come yet
	State     string `json:"state"` // "waiting" (for its sender), "open", "sealed", "lingering" (its sender is gone), "remote"
	Engine    string `json:"engine"`
	Ends      int    `json:"ends"` // receiving ends that are known here
	Items     int    `json:"items"`
	Bytes     uint64 `json:"bytes"`
	Capacity  uint64 `json:"capacity_bytes"`
	Waiting   int    `json:"waiting"` // gets that wait for an item
	Delivered uint64 `json:"delivered"`
}

// Topology is the node's hardware, as discovery/topology describes it, and what the daemon makes of it.
type Topology struct {
	Nodes     []topology.Node   `json:"nodes"`
	Devices   []topology.Device `json:"devices"`
	Links     [][]topology.Word `json:"links"`  // between devices: "X", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS", "?"
	Memory    [][]topology.Word `json:"memory"` // between each device and the memory of each node
	Nearest   []Nearest         `json:"nearest"`
	Placement Placement         `json:"placement"`
}

// Nearest has the NICs to use for a GPU: all that are equally near.
type Nearest struct {
	GPU  string        `json:"gpu"` // a device's id
	NICs []string      `json:"nics"`
	Way  topology.Word `json:"way"`
}

// Placement says which threads of the daemon run where: copies and streams on the NUMA node of the memory that they work on.
type Placement struct {
	Active  bool              `json:"active"`
	Reason  string            `json:"reason,omitempty"` // why not
	Nodes   []PlacementNode   `json:"nodes"`            // where threads can run; none when there is nothing to choose
	Regions []PlacementRegion `json:"regions"`
}

// PlacementNode is a NUMA node with CPUs.
type PlacementNode struct {
	Node    int    `json:"node"`
	CPUs    string `json:"cpus"`    // on which this node's threads run
	Own     bool   `json:"own"`     // these are CPUs of this node; false: it has none that the daemon may use
	Threads int    `json:"threads"` // copy workers and streams that are there now
	Slices  uint64 `json:"slices"`  // moved there because their memory is there
	Bytes   uint64 `json:"bytes"`
}

// PlacementRegion says where registered memory lies.
type PlacementRegion struct {
	Region string  `json:"region"` // its id
	Engine string  `json:"engine"`
	Nodes  []Share `json:"nodes"`
}

// Explain is the choice of a transport, and why the better ones were not chosen.
type Explain struct {
	Peer      string         `json:"peer"`
	Transport string         `json:"transport"`         // "" none
	GBps      float64        `json:"gbps"`              // the larger of in and out
	GBpsIn    float64        `json:"gbps_in"`           // measured rate of what came from the peer lately; 0: unknown
	GBpsOut   float64        `json:"gbps_out"`          // of what was sent to the peer lately; within the node, both are the rate of copies
	Secure    bool           `json:"secure"`            // of the channel; without one: as configured
	DataPlain bool           `json:"data_plain"`        // likewise
	WhyPlain  string         `json:"data_plain_reason"` // "insecure", "data_plain" (configured), "loopback"; "" not plain
	Notes     []string       `json:"notes"`
	Streams   []Stream       `json:"streams"` // data links, and where they go
	Choices   []ExplainTried `json:"choices"` // every transport there is, best first
}

// ExplainTried is one transport's answer.
type ExplainTried struct {
	Transport string `json:"transport"`
	Answer    string `json:"answer"` // "chosen", "possible", "idle" (the peer is not connected, and nothing is the matter with it), "refused"
	Reason    string `json:"reason,omitempty"`
}

// BenchOptions bound a measurement.
type BenchOptions struct {
	Seconds float64  `json:"seconds,omitempty"` // per row; 0: 1
	Sizes   []uint64 `json:"sizes,omitempty"`   // block sizes; empty: 4 KiB to 1 MiB
}

// BenchRow is one line of the table.
type BenchRow struct {
	Transport string  `json:"transport"`
	Bytes     uint64  `json:"bytes"`  // of a block
	Blocks    int     `json:"blocks"` // of a hand-over
	Count     int     `json:"count"`  // hand-overs
	GBps      float64 `json:"gbps"`
	P50       float64 `json:"p50_seconds"` // take to done
	P99       float64 `json:"p99_seconds"`
	Error     string  `json:"error,omitempty"`
}

// Error is the body of every answer that is not 2xx.
type Error struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}
