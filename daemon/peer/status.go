package peer

import "time"

// Stats counts events since the start.
type Stats struct {
	Opened     uint64 // channels
	Refused    uint64 // connections that were not let in
	Malformed  uint64 // frames and greetings that no honest peer sends
	Reconnects uint64 // channels with a node that had one before
}

// Status is one peer, for people and metrics.
type Status struct {
	Node        string
	Address     string // "": unknown
	State       string // "up", "dialing", "down"
	Epoch       uint64
	Incarnation uint64
	Version     string
	Proto       uint32
	Advertise   string
	Dialed      bool // by this node
	Secure      bool
	DataPlain   bool
	WhyPlain    string // why DataPlain: "insecure", "data_plain", "loopback"
	Links       int
	Streams     []Stream // the links that are up
	Transports  []string
	Since       time.Time
	RTT         time.Duration
	Problem     string // the last failure, or that another node has the same name
}

// Snapshot lists configured and connected peers, in no order.
func (m *Manager) Snapshot() ([]Status, Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Status
	for _, c := range m.channels {
		s := c.status()
		s.Problem = m.namesake(c.node)
		out = append(out, s)
	}
	for name, addr := range m.nodes {
		if m.channels[name] != nil || name == m.cfg.Node {
			continue
		}
		t := target{addr, name}
		s := Status{Node: name, Address: addr, State: "down"}
		if m.dialing[t] != nil {
			s.State = "dialing"
		}
		for _, p := range m.paces(t) {
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
