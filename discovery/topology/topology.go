package topology

import "fmt"

// Topology is what Read found. It does not change after that.
type Topology struct {
	// Nodes are the NUMA nodes, by id. A machine without any has one, 0.
	Nodes []Node `json:"nodes"`
	// Devices are GPUs, then NICs, in the order in which they were given.
	Devices []Device `json:"devices"`
	// Links[i][j] is the way between devices i and j.
	Links [][]Word `json:"links"`
	// Memory[i][n] is the way between device i and the memory of Nodes[n].
	Memory [][]Word `json:"memory"`
}

// Kind of a device.
type Kind string

// The kinds.
const (
	KindGPU Kind = "gpu"
	KindNIC Kind = "nic"
)

// Device is a GPU or NIC and its place.
type Device struct {
	ID   string `json:"id"` // "GPU0", "NIC3": unique
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Netdev is the link of a NIC that is an RDMA device.
	Netdev string `json:"netdev,omitempty"`
	PCI    string `json:"pci"` // in the form of /sys
	// Root is the root complex, by the domain and bus it begins with: "pci0000:15". Empty: not known.
	Root string `json:"root"`
	// Bridges are the PCI addresses of the bridges between the root complex and the device, in that order.
	Bridges []string `json:"bridges"`
	// Node is the NUMA node, -1: not known.
	Node int `json:"numa_node"`
	// CPUs are those near the device, as a list "0-3,8". Empty: not known.
	CPUs string `json:"cpus"`
	// MemoryNode is the NUMA node that a GPU's own memory forms; -1: none.
	MemoryNode int `json:"memory_node"`
	// VirtualOf is the PCI address of the device that this one is a virtual function of.
	VirtualOf string `json:"virtual_of,omitempty"`
	// MIG are the instances of a split GPU.
	MIG []string `json:"mig,omitempty"`
	// Switched is how many NVLinks of this GPU go to a switch; Fabric names that switch's fabric.
	Switched int    `json:"switch_links,omitempty"`
	Fabric   string `json:"fabric,omitempty"`
	// Problem says why the place is not known.
	Problem string `json:"problem,omitempty"`
}

// Read computes the topology of devices in the tree below root, which is "/sys" on a live system. It never fails:
// what the tree lacks is left out, or mentioned in the device's Problem.
func Read(root string, gpus []GPU, nics []NIC) *Topology {
	t := &Topology{Nodes: Nodes(root), Devices: make([]Device, 0, len(gpus)+len(nics))}
	sys := tree{root: root, nodes: t.Nodes}
	for _, g := range gpus {
		d := Device{ID: fmt.Sprintf("GPU%d", g.Index), Kind: KindGPU, Name: g.Name, MemoryNode: g.MemoryNode, MIG: g.MIG, Switched: g.SwitchLinks, Fabric: g.Fabric}
		sys.place(&d, g.PCI, g.NUMA)
		t.Devices = append(t.Devices, d)
	}
	for i, n := range nics {
		d := Device{ID: fmt.Sprintf("NIC%d", i), Kind: KindNIC, Name: n.Name, Netdev: n.Netdev, MemoryNode: -1}
		sys.place(&d, n.PCI, n.NUMA)
		t.Devices = append(t.Devices, d)
	}
	t.measure(gpus)
	return t
}

// measure fills Links and Memory.
func (t *Topology) measure(gpus []GPU) {
	t.Links, t.Memory = make([][]Word, len(t.Devices)), make([][]Word, len(t.Devices))
	for i := range t.Devices {
		a := &t.Devices[i]
		t.Links[i] = make([]Word, len(t.Devices))
		for j := range t.Devices {
			t.Links[i][j] = between(a, &t.Devices[j])
			switch {
			case i == j:
				t.Links[i][j] = Self
			case i < len(gpus) && j < len(gpus):
				if n := nvlinks(&gpus[i], &gpus[j]); n > 0 {
					t.Links[i][j] = NV(n)
				}
			}
		}
	}
	for i := range t.Devices {
		t.Memory[i] = make([]Word, len(t.Nodes))
		for n := range t.Nodes {
			t.Memory[i][n] = t.toMemory(i, t.Nodes[n].ID)
		}
	}
}

// BestNICs returns the indices in Devices of the NICs that are nearest to device i, and how near they are. There are
// none if no NIC's place is known.
func (t *Topology) BestNICs(i int) (nics []int, how Word) {
	how = Unknown
	for j := range t.Devices {
		w := t.Links[i][j]
		if t.Devices[j].Kind != KindNIC || i == j || w.Rank() > how.Rank() || w == Unknown {
			continue
		}
		if w.Rank() < how.Rank() {
			nics, how = nil, w
		}
		nics = append(nics, j)
	}
	return nics, how
}
