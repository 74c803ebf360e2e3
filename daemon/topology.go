package daemon

import (
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/metrics"
	"github.com/kvpipe/kvpipe/discovery/gpu"
	"github.com/kvpipe/kvpipe/discovery/nic"
	"github.com/kvpipe/kvpipe/discovery/topology"
)

// hardware is what the inventories say this node has, and how that hangs together. That is computed anew when an
// inventory changes. Any goroutine may ask and tell.
type hardware struct {
	sys string // root of sysfs

	mu   sync.Mutex
	gpus []topology.GPU
	nics []topology.NIC
	now  atomic.Pointer[topology.Topology]
}

// newHardware knows the NUMA nodes. Devices come with setGPUs and setNICs.
func newHardware(sys string) *hardware {
	h := &hardware{sys: sys}
	h.now.Store(topology.Read(sys, nil, nil))
	return h
}

func (h *hardware) setGPUs(now gpu.Inventory) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if gpus := placedGPUs(now); !reflect.DeepEqual(gpus, h.gpus) {
		h.gpus = gpus
		h.now.Store(topology.Read(h.sys, h.gpus, h.nics))
	}
}

func (h *hardware) setNICs(now *nic.Inventory) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if nics := placedNICs(now); !reflect.DeepEqual(nics, h.nics) {
		h.nics = nics
		h.now.Store(topology.Read(h.sys, h.gpus, h.nics))
	}
}

// placedGPUs returns what the topology needs of GPUs.
func placedGPUs(now gpu.Inventory) (out []topology.GPU) {
	for i := range now.Devices {
		d := &now.Devices[i]
		g := topology.GPU{Index: d.Index, Name: d.Name, PCI: d.PCI, NUMA: d.NUMA, MemoryNode: d.MemoryNUMA}
		if d.Fabric.In() && d.Fabric.Cluster != "" {
			g.Fabric = d.Fabric.Cluster + "/" + number(uint64(d.Fabric.Clique))
		}
		for _, l := range d.Links {
			switch {
			case !l.Active:
			case l.Remote == gpu.RemoteGPU:
				g.Links = append(g.Links, topology.NVLink{Peer: l.PCI, Count: 1})
			case l.Remote == gpu.RemoteSwitch:
				g.SwitchLinks++
			}
		}
		for _, m := range d.Instances {
			g.MIG = append(g.MIG, "MIG "+m.Profile)
		}
		if d.MIG && len(g.MIG) == 0 {
			g.MIG = []string{"MIG, no instance"}
		}
		out = append(out, g)
	}
	return out
}

// placedNICs returns what the topology needs of NICs: RDMA devices, and links without one, if they are on PCI. A link
// with an RDMA device of software, which has no place, is one without.
func placedNICs(now *nic.Inventory) (out []topology.NIC) {
	placed := map[string]bool{} // RDMA devices
	for i := range now.Devices {
		d := &now.Devices[i]
		if d.PCI == "" {
			continue
		}
		placed[d.Name] = true
		n := topology.NIC{Name: d.Name, PCI: d.PCI, NUMA: d.NUMA}
		for _, p := range d.Ports {
			if n.Netdev == "" {
				n.Netdev = p.Netdev
			}
		}
		out = append(out, n)
	}
	for i := range now.Links {
		l := &now.Links[i]
		if l.PCI != "" && (l.RDMA == nil || !placed[l.RDMA.Device]) && (l.Kind == "ethernet" || l.Kind == "infiniband") {
			out = append(out, topology.NIC{Name: l.Name, PCI: l.PCI, NUMA: l.NUMA, Netdev: l.Name})
		}
	}
	return out
}

// nearest returns the NICs to use for each GPU.
func nearest(t *topology.Topology) []admin.Nearest {
	out := []admin.Nearest{}
	for i := range t.Devices {
		if t.Devices[i].Kind != topology.KindGPU {
			continue
		}
		n := admin.Nearest{GPU: t.Devices[i].ID, NICs: []string{}}
		best, way := t.BestNICs(i)
		for _, j := range best {
			n.NICs = append(n.NICs, t.Devices[j].Name)
		}
		n.Way = way
		out = append(out, n)
	}
	return out
}

// scrapeTopology shows how near each GPU's best NICs are, and what moves on each NUMA node.
func (v view) scrapeTopology(s *metrics.Snapshot) {
	t := v.hardware.now.Load()
	for i := range t.Devices {
		best, way := t.BestNICs(i)
		if t.Devices[i].Kind != topology.KindGPU {
			continue
		}
		for _, j := range best {
			s.NearestNICs = append(s.NearestNICs, metrics.NearestNIC{GPU: t.Devices[i].ID, PCI: t.Devices[i].PCI, NIC: t.Devices[j].Name, Way: string(way), Rank: way.Rank()})
		}
	}
	for _, x := range v.places.Spots() {
		s.NUMA = append(s.NUMA, metrics.NUMANode{Node: x.Node, Threads: x.Threads, Slices: x.Slices, Bytes: x.Bytes})
	}
}
