package daemon

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/metrics"
	"github.com/kvpipe/kvpipe/daemon/peer"
	"github.com/kvpipe/kvpipe/discovery/nic"
)

// streams says by which NICs a peer's data links go.
func (v view) streams(p *peer.Status) []admin.Stream {
	out := []admin.Stream{}
	if p == nil {
		return out
	}
	for _, s := range p.Streams {
		out = append(out, admin.Stream{Index: s.Index, NIC: v.nics.named(s.Local), Local: s.Local.String(), Remote: s.Remote.String(), PeerNIC: s.PeerNIC})
	}
	return out
}

// carried counts data links by NIC.
func (v view) carried() map[string]int {
	out := map[string]int{}
	peers, _ := v.peers.Snapshot()
	for i := range peers {
		for _, s := range v.streams(&peers[i]) {
			out[s.NIC]++
		}
	}
	return out
}

func (v view) NICs(context.Context) (admin.NICs, error) {
	gid := int(v.nics.gid.Load())
	now, rules, links := v.nics.watcher.Current(), v.nics.rules.Load(), v.carried()
	out := admin.NICs{
		State: string(now.State), Reason: now.Reason, NICs: []admin.NIC{}, RDMA: []admin.RDMADevice{}, Missing: append([]string{}, rules.Missing(now)...),
		Streams: v.cfg.TCP.Streams,
	}
	for _, l := range now.Links {
		n := admin.NIC{
			Name: l.Name, Index: l.Index, Kind: l.Kind, Up: l.Up, Mbps: l.SpeedMbps, MTU: l.MTU, MAC: l.MAC, PCI: l.PCI, NUMA: l.NUMA, Master: l.Master,
			Addresses: []string{}, Refused: rules.Refuses(l), Links: links[l.Name],
		}
		n.Used = n.Refused == ""
		if l.RDMA != nil {
			n.RDMA = fmt.Sprintf("%s/%d", l.RDMA.Device, l.RDMA.Port)
		}
		for _, a := range l.Addresses {
			n.Addresses = append(n.Addresses, a.String())
		}
		out.NICs = append(out.NICs, n)
	}
	for _, d := range now.Devices {
		x := admin.RDMADevice{Name: d.Name, NodeGUID: d.NodeGUID, PCI: d.PCI, NUMA: d.NUMA, Firmware: d.Firmware, Ports: []admin.RDMAPort{}}
		for _, p := range d.Ports {
			x.Ports = append(x.Ports, rdmaPort(p, gid))
		}
		out.RDMA = append(out.RDMA, x)
	}
	return out, nil
}

// somewhere has, for each family, an address that stands for all peers.
var somewhere = []struct {
	family string
	peer   netip.Addr
}{{"IPv4", netip.MustParseAddr("192.0.2.1")}, {"IPv6", netip.MustParseAddr("2001:db8::1")}}

func rdmaPort(p nic.Port, index int) admin.RDMAPort {
	out := admin.RDMAPort{
		Number: p.Number, State: p.State, LinkLayer: p.LinkLayer, Mbps: p.SpeedMbps, NIC: p.Netdev, GIDs: []admin.GID{}, Choices: []admin.GIDChoice{},
	}
	for _, g := range p.GIDs {
		out.GIDs = append(out.GIDs, admin.GID{Index: g.Index, GID: g.GID.Unmap().String(), Type: string(g.Type), NIC: g.Netdev})
	}
	for _, s := range somewhere {
		c, err := nic.ChooseGID(p, s.peer, index)
		choice := admin.GIDChoice{Family: s.family, Index: c.GID.Index, Reason: c.Reason}
		if err != nil {
			choice.Index, choice.Reason = -1, err.Error()
		}
		out.Choices = append(out.Choices, choice)
	}
	return out
}

// scrapeNICs shows the NICs of the machine and those that are used, but not other links, such as those of containers.
func (v view) scrapeNICs(s *metrics.Snapshot) {
	now, rules, links := v.nics.watcher.Current(), v.nics.rules.Load(), v.carried()
	s.NICsKnown = now.State == nic.Complete
	for _, l := range now.Links {
		if used := rules.Refuses(l) == ""; used || l.PCI != "" {
			s.NICs = append(s.NICs, metrics.NIC{Name: l.Name, Up: l.Up, Used: used, Mbps: l.SpeedMbps, Links: links[l.Name]})
		}
	}
}
