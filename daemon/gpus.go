package daemon

import (
	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/metrics"
	"github.com/kvpipe/kvpipe/discovery/gpu"
)

// watchGPUs begins to look for GPUs, beside everything else: NVML takes seconds to start on a large box, and nothing
// waits for it.
func (d *Daemon) watchGPUs() {
	c := gpu.Config{Notify: d.gpuChanged}
	switch v := d.cfg.GPU.NVML; v {
	case "off":
		c.Off = true
	case "auto":
	default:
		c.Library = v
	}
	d.gpus = gpu.Watch(c)
}

// stopGPUs begins to end the watching, and returns a function that waits for its end. That takes until NVML returns
// from a call.
func (d *Daemon) stopGPUs() (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.gpus.Close(); err != nil {
			d.log.Warn("stopping", "error", err)
		}
	}()
	return func() { <-done }
}

// gpuChanged logs each change once. What somebody has to look at is a warning; that a node has no GPUs is not.
func (d *Daemon) gpuChanged(now gpu.Inventory, e gpu.Event) {
	d.hardware.setGPUs(now)
	log := d.log.With("gpu", e.Device.PCI, "uuid", e.Device.UUID)
	switch e.Kind {
	case gpu.StateChanged:
		d.logGPUs(now)
	case gpu.Added:
		log.Info("gpu found", "name", e.Device.Name, "memory", e.Device.Memory, "numa", e.Device.NUMA, "mig", len(e.Device.Instances), "nvlinks", e.Device.LinksUp(), "problem", e.Device.Problem)
	case gpu.BackAgain, gpu.Split, gpu.Changed:
		log.Info("gpu changed", "what", e.Text)
	case gpu.Removed:
		log.Warn("gpu gone", "what", e.Text)
	case gpu.LostOne:
		log.Warn("gpu lost", "what", e.Text)
	case gpu.XidArrived:
		x := e.Device.Xid
		log.Warn("gpu error", "xid", x.Code, "what", e.Text, "instance", x.Instance, "errors", x.Count)
	}
}

func (d *Daemon) logGPUs(i gpu.Inventory) {
	named := d.cfg.GPU.NVML != "auto" // the configuration says that there is one
	switch {
	case i.State == gpu.OK && i.Reason != "":
		d.log.Warn("gpus", "count", len(i.Devices), "why", i.Reason, "fix", i.Fix)
	case i.State == gpu.OK:
		d.log.Info("gpus", "count", len(i.Devices), "driver", i.Driver, "cuda", i.CUDA)
	case i.State == gpu.Mismatch, i.State == gpu.NoPermission, i.State == gpu.Failed, i.State == gpu.NoLibrary && named:
		d.log.Warn("no gpus", "state", string(i.State), "why", i.Reason, "fix", i.Fix)
	default:
		d.log.Info("no gpus", "state", string(i.State), "why", i.Reason)
	}
}

// gpuSummary returns the line about GPUs in the daemon's status.
func (v view) gpuSummary() admin.GPUSummary {
	i := v.gpus.Inventory()
	s := admin.GPUSummary{State: string(i.State), Reason: i.Reason, Fix: i.Fix, Driver: i.Driver, Count: len(i.Devices)}
	for _, d := range i.Devices {
		if d.Lost {
			s.Lost++
		}
	}
	return s
}

// scrapeGPUs counts GPUs by their state. Those that are neither well nor lost count as unreadable.
func (v view) scrapeGPUs(s *metrics.Snapshot) {
	i := v.gpus.Inventory()
	s.GPUState, s.GPUs = string(i.State), map[string]int{"ok": 0, "lost": 0, "unreadable": 0}
	for _, d := range i.Devices {
		switch {
		case d.Lost:
			s.GPUs["lost"]++
		case d.Problem != "":
			s.GPUs["unreadable"]++
		default:
			s.GPUs["ok"]++
		}
		if d.UUID == "" {
			continue
		}
		g := metrics.GPU{UUID: d.UUID}
		if d.Xid != nil {
			g.Errors, g.LastXid = d.Xid.Count, d.Xid.Code
		}
		s.GPUErrors = append(s.GPUErrors, g)
	}
}
