package metrics

import "time"

// Snapshot is what a scrape shows. A nil map shows nothing.
type Snapshot struct {
	Version, Node            string
	Draining                 bool
	Sessions, Regions        int
	PinnedBytes              uint64
	OrphanedBytes            uint64
	Offers                   map[string]int      // by state
	Pipes                    map[string]PipeKind // by kind
	Takes, Transfers         int
	HeldShared, HeldExcl     int
	Operations               map[Outcome]uint64
	MovedBytes               uint64
	SlicesRetried            uint64
	SessionsEnded            map[string]uint64 // by reason
	Limits                   []Limit
	Peers                    []Peer
	NICsKnown                bool
	NICs                     []NIC
	Transports               []Transport
	Malformed, Refused       uint64
	ChannelsOpened, Reopened uint64
	GPUState                 string         // of the search for GPUs; "" shows nothing
	GPUs                     map[string]int // by state
	GPUErrors                []GPU
	TLS                      bool           // a certificate is configured
	CertificateUntil         time.Time      // zero: none can be used
	Warnings                 map[string]int // by kind
	NearestNICs              []NearestNIC
	NUMA                     []NUMANode // on which threads are placed
}

// NearestNIC is one of the NICs that are nearest to a GPU.
type NearestNIC struct {
	GPU, PCI, NIC, Way string
	Rank               int
}

// NUMANode is a node on which copies and streams run because of their memory.
type NUMANode struct {
	Node, Threads int
	Slices, Bytes uint64
}

// PipeKind has the homes of a kind ("pipe", "buffer") on this node, taken together.
type PipeKind struct {
	Homes, Items, Waiting int
	Bytes                 uint64
}

// Limit is a limit of the configuration and how much of it is used: by the session nearest to it, if it applies to
// each.
type Limit struct {
	Key         string
	Used, Limit uint64
}

// Outcome is how operations ended.
type Outcome struct{ Operation, Status, Reason string }

// Peer is another node.
type Peer struct {
	Node              string
	Up                bool
	RTT               time.Duration
	Links             int
	Secure, DataPlain bool
	Chosen            string  // transport, "" none
	InPerSecond       float64 // bytes, of what came from the peer lately
	OutPerSecond      float64 // bytes, of what was sent to the peer lately
}

// GPU is what the driver reported of one GPU.
type GPU struct {
	UUID            string
	Errors, LastXid uint64 // LastXid 0: none
}

// NIC is a network link of this node.
type NIC struct {
	Name     string
	Up, Used bool
	Mbps     int // 0 unknown
	Links    int
}

// Transport counts what one transport moved between this node and a peer ("" this node).
type Transport struct {
	Name, Peer            string
	SentBytes, GotBytes   uint64
	SentSlices, GotSlices uint64
	Discarded             uint64
}
