package admin

import "time"

// GPUSummary is this node's GPUs in a line.
type GPUSummary struct {
	State  string `json:"state"` // as in GPUs
	Reason string `json:"reason,omitempty"`
	Fix    string `json:"fix,omitempty"`
	Driver string `json:"driver"`
	Count  int    `json:"count"` // lost ones included
	Lost   int    `json:"lost"`
}

// GPUs are this node's GPUs, or why there are none.
type GPUs struct {
	State   string `json:"state"`            // "ok", "starting", "off", "no_cgo", "no_library", "no_driver", "no_gpu", "driver_mismatch", "no_permission", "failed"
	Reason  string `json:"reason,omitempty"` // in words, unless State is ok
	Fix     string `json:"fix,omitempty"`
	Driver  string `json:"driver"` // its version; "" unknown
	CUDA    string `json:"cuda"`   // the highest version that the driver serves
	Devices []GPU  `json:"devices"`
}

// GPU is one GPU. What is not known is 0 or "", and -1 for NUMA nodes.
type GPU struct {
	Index      int           `json:"index"`
	UUID       string        `json:"uuid"`
	Name       string        `json:"name"`
	PCI        string        `json:"pci"`
	NUMA       int           `json:"numa"`        // node of the host's memory next to it
	MemoryNUMA int           `json:"memory_numa"` // node that its own memory forms
	Memory     uint64        `json:"memory_bytes"`
	BAR1       uint64        `json:"bar1_bytes"`
	MIG        bool          `json:"mig"`
	Instances  []GPUInstance `json:"instances"`
	NVLinks    []NVLink      `json:"nvlinks"`
	Fabric     *Fabric       `json:"fabric,omitempty"`
	DMABuf     bool          `json:"dma_buf"`
	WhyDMABuf  string        `json:"dma_buf_reason"` // what it was derived from, or what is missing
	Lost       bool          `json:"lost"`
	Problem    string        `json:"problem,omitempty"`
	Xid        *Xid          `json:"last_xid,omitempty"`
}

// GPUInstance is a part of a GPU that is split by MIG.
type GPUInstance struct {
	UUID    string `json:"uuid"`
	GPU     int    `json:"gpu_instance"`
	Compute int    `json:"compute_instance"`
	Profile string `json:"profile"`
	Memory  uint64 `json:"memory_bytes"`
}

// NVLink is one link of a GPU.
type NVLink struct {
	Link    int    `json:"link"`
	Active  bool   `json:"active"`
	Version string `json:"version"`
	Speed   uint64 `json:"bytes_per_second"` // in one direction
	Remote  string `json:"remote"`           // "gpu", "switch", "unknown"
	PCI     string `json:"remote_pci"`
}

// Fabric is a GPU's place in an NVLink fabric.
type Fabric struct {
	State   string `json:"state"`   // "not_started", "in_progress", "completed"
	Status  string `json:"status"`  // why it could not join; "": it did, or still tries
	Cluster string `json:"cluster"` // UUID; "" the fabric ends with this node
	Clique  uint32 `json:"clique"`
}

// Xid is the last error that the driver reported of a GPU.
type Xid struct {
	Code     uint64    `json:"code"`
	Text     string    `json:"text"`
	When     time.Time `json:"when"`
	Instance string    `json:"instance,omitempty"` // UUID of the MIG instance concerned
	Count    uint64    `json:"count"`              // errors of this GPU since the daemon started, of any code
}
