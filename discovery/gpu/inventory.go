package gpu

import "time"

// State is the result of the search for GPUs.
type State string

const (
	Starting     State = "starting"        // not known yet: NVML takes seconds to start on a large box
	OK           State = "ok"              // there are GPUs, which Devices lists
	Off          State = "off"             // the configuration says not to look
	NoCgo        State = "no_cgo"          // this binary was built without cgo, which NVML needs
	NoLibrary    State = "no_library"      // no libnvidia-ml.so.1, or it does not load
	NoDriver     State = "no_driver"       // the library is there, but its kernel driver is not loaded
	NoGPU        State = "no_gpu"          // the driver is loaded and has no GPU
	Mismatch     State = "driver_mismatch" // library and kernel driver are of different versions
	NoPermission State = "no_permission"   // this user may not open the driver's devices
	Failed       State = "failed"          // NVML reports something else; see Reason
)

// Inventory is the GPUs of this node at one moment. It is a value: it does not change later, and its slices must not
// be changed.
type Inventory struct {
	State   State
	Reason  string   // why State is not OK, or that all this may be old because NVML hangs; "" if all is well
	Fix     string   // what to do about it; "" if there is nothing to do
	Driver  string   // version of the driver, "580.65.06"; "" unknown
	CUDA    string   // highest CUDA version that the driver serves, "13.0"; "" unknown
	Devices []Device // in the order of NVML, which is that of PCI addresses; empty unless State is OK
}

// Device is one GPU. Zero values mean that NVML does not tell, unless said otherwise.
type Device struct {
	Index      int    // NVML's; changes when GPUs come or go, UUID does not
	UUID       string // "GPU-..."; "" when the GPU cannot even be opened
	Name       string // "NVIDIA H200"
	PCI        string // as in sysfs: "0000:1b:00.0"
	NUMA       int    // node of the host's memory next to the GPU; -1 unknown
	MemoryNUMA int    // NUMA node that the GPU's own memory forms, where the CPU sees it as one (Grace); -1: none
	Memory     uint64 // bytes
	BAR1       uint64 // bytes of the window through which other PCI devices reach the memory
	MIG        bool   // the GPU is split; an engine gets one of Instances
	Instances  []Instance
	Links      []Link // NVLinks that the GPU has, by number; also those that are down
	Fabric     Fabric

	// DMABuf says that its memory can be exported as a dma-buf, so that NICs reach it without nvidia-peermem.
	// WhyDMABuf says how that was concluded, or what is missing.
	DMABuf    bool
	WhyDMABuf string

	Lost    bool   // it fell off the bus, or needs a reset: nothing on it works
	Problem string // why it is lost or cannot be read; "" if all is well
	Xid     *Xid   // the last one since the daemon started; nil: none
}

// Instance is a part of a GPU that is split by MIG.
type Instance struct {
	UUID    string // "MIG-..."
	GPU     int    // id of the GPU instance
	Compute int    // id of the compute instance in it
	Profile string // "3g.71gb"
	Memory  uint64 // bytes
}

// Link is one NVLink.
type Link struct {
	Number  int
	Active  bool
	Version string     // "4.0"; "" unknown
	Speed   uint64     // bytes per second in one direction, 0 unknown or down
	Remote  RemoteKind // of the other end
	PCI     string     // of the other end, as in sysfs; "" unknown
}

// RemoteKind is what is at the other end of an NVLink.
type RemoteKind string

const (
	RemoteGPU     RemoteKind = "gpu"
	RemoteSwitch  RemoteKind = "switch"
	RemoteUnknown RemoteKind = "unknown"
)

// Fabric is a GPU's place in an NVLink fabric. GPUs of the same cluster and clique reach each other's memory, on other nodes too.
type Fabric struct {
	State   string // "completed" once the GPU is in; "not_started", "in_progress"; "": no fabric, or an NVML that cannot tell
	Cluster string // UUID; "": none, the fabric ends with this node
	Clique  uint32
	Status  string // why it could not join; "": it did, or still tries
}

// In says whether the GPU has joined a fabric.
func (f Fabric) In() bool { return f.State == "completed" && f.Status == "" }

// Xid is an error that the driver reported of a GPU (https://docs.nvidia.com/deploy/xid-errors).
type Xid struct {
	Code     uint64
	When     time.Time
	Instance string // UUID of the MIG instance concerned; "": the GPU as a whole, or unknown
	Count    uint64 // errors of this GPU since the daemon started, of any code
}

// Device finds a GPU by its UUID.
func (i Inventory) Device(uuid string) (Device, bool) {
	for _, d := range i.Devices {
		if d.UUID == uuid && uuid != "" {
			return d, true
		}
	}
	return Device{}, false
}
