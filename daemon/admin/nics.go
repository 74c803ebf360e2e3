package admin

// NICs is the node's network, and what data links use of it.
type NICs struct {
	State   string       `json:"state"` // "complete", "partial", "unknown"
	Reason  string       `json:"reason,omitempty"`
	NICs    []NIC        `json:"nics"`
	RDMA    []RDMADevice `json:"rdma"`
	Missing []string     `json:"missing"` // entries of nic_allow that name nothing
	Streams int          `json:"streams"` // tcp.streams: data links of a channel
}

// NIC is a network link.
type NIC struct {
	Name      string   `json:"name"`
	Index     int      `json:"index"`
	Kind      string   `json:"kind"` // "ethernet", "infiniband", "loopback", "veth", "bond", ...
	Up        bool     `json:"up"`   // with carrier
	Mbps      int      `json:"mbps"` // 0 unknown
	MTU       int      `json:"mtu"`
	MAC       string   `json:"mac"`
	PCI       string   `json:"pci"`  // "" virtual
	NUMA      int      `json:"numa"` // -1 unknown
	Master    string   `json:"master,omitempty"`
	Addresses []string `json:"addresses"`
	RDMA      string   `json:"rdma,omitempty"`    // device/port
	Used      bool     `json:"used"`              // data links may go over it
	Refused   string   `json:"refused,omitempty"` // why not
	Links     int      `json:"links"`             // data links that go over it now
}

// RDMADevice is an RDMA device.
type RDMADevice struct {
	Name     string     `json:"name"`
	NodeGUID string     `json:"node_guid"`
	PCI      string     `json:"pci"`
	NUMA     int        `json:"numa"` // -1 unknown
	Firmware string     `json:"firmware"`
	Ports    []RDMAPort `json:"ports"`
}

// RDMAPort is a port of an RDMA device.
type RDMAPort struct {
	Number    int         `json:"number"`
	State     string      `json:"state"`      // "ACTIVE", "DOWN", ...
	LinkLayer string      `json:"link_layer"` // "Ethernet", "InfiniBand"
	Mbps      int         `json:"mbps"`
	NIC       string      `json:"nic"` // "" none
	GIDs      []GID       `json:"gids"`
	Choices   []GIDChoice `json:"choices"`
}

// GID is an entry of a port's table.
type GID struct {
	Index int    `json:"index"`
	GID   string `json:"gid"`
	Type  string `json:"type"` // "IB", "RoCE v1", "RoCE v2"
	NIC   string `json:"nic"`
}

// GIDChoice is the GID with which the port would talk to peers of an address family.
type GIDChoice struct {
	Family string `json:"family"` // "IPv4", "IPv6"
	Index  int    `json:"index"`  // -1: none
	Reason string `json:"reason"`
}

// Stream is a data link of a peer's channel.
type Stream struct {
	Index   int    `json:"index"`
	NIC     string `json:"nic"` // "" unknown
	Local   string `json:"local"`
	Remote  string `json:"remote"`
	PeerNIC string `json:"peer_nic"` // "" unknown
}
