package admintest

import (
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

// gpus returns a box with one GPU that is well, one that is split, and one that is lost.
func gpus() admin.GPUs {
	const derived = "open kernel module 570.133.20, kernel 6.8.0 (derived from these, the driver was not asked)"
	link := func(n int, active bool) admin.NVLink {
		l := admin.NVLink{Link: n, Active: active, Remote: "unknown"}
		if active {
			l.Version, l.Speed, l.Remote, l.PCI = "4.0", 26562e6, "switch", "0000:05:00.0"
		}
		return l
	}
	g := admin.GPU{
		UUID: "GPU-1b9f5c8e-0d7a-4a53-9a57-0a4c2b1d3e4f", Name: "NVIDIA H200", PCI: "0000:1b:00.0", NUMA: 0, MemoryNUMA: -1, Memory: 150754820096,
		BAR1: 256 << 30, Instances: []admin.GPUInstance{}, NVLinks: []admin.NVLink{link(0, true), link(1, false)}, DMABuf: true, WhyDMABuf: derived,
	}
	well, split, lost := g, g, g
	well.Fabric = &admin.Fabric{State: "completed", Cluster: "7f3ac1de-51b2-4c8e-9d0a-6b5c4d3e2f10", Clique: 32766}
	split.Index, split.UUID, split.PCI, split.NUMA, split.MIG, split.NVLinks = 1, "GPU-43", "0000:43:00.0", 1, true, []admin.NVLink{}
	split.DMABuf, split.WhyDMABuf = false, "the kernel module is the proprietary one 570.133.20: install NVIDIA's open kernel modules, or use nvidia-peermem"
	split.Instances = []admin.GPUInstance{
		{UUID: "MIG-3g", GPU: 2, Profile: "3g.71gb", Memory: 71424 << 20}, {UUID: "MIG-1c", GPU: 5, Compute: 1, Profile: "1c.2g.35gb", Memory: 35712 << 20},
	}
	lost.Index, lost.UUID, lost.PCI, lost.NUMA = 2, "GPU-9d", "0000:9d:00.0", -1
	lost.Lost, lost.Problem = true, "GPU is lost: restart the node or reset the GPU"
	lost.Xid = &admin.Xid{Code: 79, Text: "the GPU has fallen off the bus", When: time.Date(2030, 1, 2, 4, 5, 6, 0, time.UTC), Count: 2}
	return admin.GPUs{State: "ok", Driver: "570.133.20", CUDA: "12.8", Devices: []admin.GPU{well, split, lost}}
}
