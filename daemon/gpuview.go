package daemon

import (
	"context"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/discovery/gpu"
)

// GPUs returns the inventory as the control interface shows it.
func (v view) GPUs(context.Context) (admin.GPUs, error) {
	i := v.gpus.Inventory()
	out := admin.GPUs{State: string(i.State), Reason: i.Reason, Fix: i.Fix, Driver: i.Driver, CUDA: i.CUDA, Devices: make([]admin.GPU, 0, len(i.Devices))}
	for _, d := range i.Devices {
		out.Devices = append(out.Devices, showGPU(d))
	}
	return out, nil
}

func showGPU(d gpu.Device) admin.GPU {
	g := admin.GPU{
		Index: d.Index, UUID: d.UUID, Name: d.Name, PCI: d.PCI, NUMA: d.NUMA, MemoryNUMA: d.MemoryNUMA, Memory: d.Memory, BAR1: d.BAR1, MIG: d.MIG,
		Instances: []admin.GPUInstance{}, NVLinks: []admin.NVLink{}, DMABuf: d.DMABuf, WhyDMABuf: d.WhyDMABuf, Lost: d.Lost, Problem: d.Problem,
	}
	for _, i := range d.Instances {
		g.Instances = append(g.Instances, admin.GPUInstance{UUID: i.UUID, GPU: i.GPU, Compute: i.Compute, Profile: i.Profile, Memory: i.Memory})
	}
	for _, l := range d.Links {
		g.NVLinks = append(g.NVLinks, admin.NVLink{Link: l.Number, Active: l.Active, Version: l.Version, Speed: l.Speed, Remote: string(l.Remote), PCI: l.PCI})
	}
	if f := d.Fabric; f.State != "" {
		g.Fabric = &admin.Fabric{State: f.State, Status: f.Status, Cluster: f.Cluster, Clique: f.Clique}
	}
	if x := d.Xid; x != nil {
		g.Xid = &admin.Xid{Code: x.Code, Text: gpu.XidText(x.Code), When: x.When, Instance: x.Instance, Count: x.Count}
	}
	return g
}
