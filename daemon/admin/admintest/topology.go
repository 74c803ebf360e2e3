package admintest

import (
	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/discovery/topology"
)

// exampleTopology returns a box with two sockets: a GPU and a NIC behind one switch at the second, and another NIC at
// the first.
func exampleTopology() admin.Topology {
	const phb, pix, sys, self = topology.PHB, topology.PIX, topology.SYS, topology.Self
	return admin.Topology{
		Nodes: []topology.Node{{ID: 0, CPUs: "0-15", Bytes: 128 << 30, Distance: []int{10, 21}}, {ID: 1, CPUs: "16-31", Bytes: 128 << 30, Distance: []int{21, 10}}},
		Devices: []topology.Device{
			{ID: "GPU0", Kind: topology.KindGPU, Name: "NVIDIA L40S", PCI: "0000:b3:00.0", Root: "pci0000:ae", Bridges: []string{"0000:ae:02.0", "0000:af:00.0", "0000:b0:00.0"}, Node: 1, CPUs: "16-31", MemoryNode: -1},
			{ID: "NIC0", Kind: topology.KindNIC, Name: "mlx5_0", Netdev: "ens1f0", PCI: "0000:b4:00.0", Root: "pci0000:ae", Bridges: []string{"0000:ae:02.0", "0000:af:00.0", "0000:b0:01.0"}, Node: 1, CPUs: "16-31", MemoryNode: -1},
			{ID: "NIC1", Kind: topology.KindNIC, Name: "eno1", Netdev: "eno1", PCI: "0000:04:00.0", Root: "pci0000:00", Bridges: []string{"0000:00:1c.0"}, Node: 0, CPUs: "0-15", MemoryNode: -1},
		},
		Links:   [][]topology.Word{{self, pix, sys}, {pix, self, sys}, {sys, sys, self}},
		Memory:  [][]topology.Word{{sys, phb}, {sys, phb}, {phb, sys}},
		Nearest: []admin.Nearest{{GPU: "GPU0", NICs: []string{"mlx5_0"}, Way: pix}},
		Placement: admin.Placement{
			Active: true,
			Nodes: []admin.PlacementNode{
				{Node: 0, CPUs: "0-7", Own: true, Threads: 1, Slices: 17, Bytes: 17 << 20}, {Node: 1, CPUs: "16-23", Own: true, Threads: 3, Slices: 4096, Bytes: 4 << 30},
			},
			Regions: []admin.PlacementRegion{
				{Region: "0x100000001", Engine: "llama", Nodes: []admin.Share{{Node: 1, Pages: 16}}},
				{Region: "0x100000002", Engine: "llama", Nodes: []admin.Share{{Node: 0, Pages: 12}, {Node: 1, Pages: 4}}},
			},
		},
	}
}
