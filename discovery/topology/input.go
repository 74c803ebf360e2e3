package topology

// GPU is what Read is told of a GPU.
type GPU struct {
	// Index is the driver's number; the GPU is called "GPU0", "GPU1", ...
	Index int
	// Name is the product's, or empty.
	Name string
	// PCI is the address, DOMAIN:BUS:DEVICE.FUNCTION, in the form of /sys or of NVML (eight digits of domain, capitals).
	PCI string
	// NUMA is the node that the driver names. It is used if /sys names none. -1: not known.
	NUMA int
	// MemoryNode is the NUMA node that the GPU's own memory forms, on systems where it does (Grace). -1: none.
	MemoryNode int
	// Links are the active NVLinks that end at another GPU of this node.
	Links []NVLink
	// SwitchLinks is how many active NVLinks end at a switch.
	SwitchLinks int
	// Fabric names the fabric of those switches: cluster and clique of an NVLink fabric; empty if it has no name.
	// GPUs of different fabrics do not reach each other.
	Fabric string
	// MIG are the names of the instances of a split GPU. A split GPU cannot use NVLink.
	MIG []string
}

// NVLink is one or more links to the same GPU.
type NVLink struct {
	Peer  string // PCI address
	Count int
}

// NIC is what Read is told of a NIC.
type NIC struct {
	// Name is what people call it: "mlx5_0", "eth0". In the matrix it is "NIC0", ... by its place in the list.
	Name string
	// Netdev is the link of an RDMA device; otherwise empty.
	Netdev string
	// PCI is as for GPU.
	PCI string
	// NUMA is as for GPU.
	NUMA int
}
