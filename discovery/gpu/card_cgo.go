//go:build cgo

package gpu

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// card opens a GPU.
func (l *library) card(index int) *card {
	c := &card{Device: Device{Index: index, NUMA: -1, MemoryNUMA: -1}}
	h, r := l.nvml.DeviceGetHandleByIndex(index)
	if r != nvml.SUCCESS {
		c.dead, c.Lost = true, lost(r)
		c.Problem = "the GPU cannot be opened: " + oneLine(r.Error())
		return c
	}
	c.nvml = h
	return c
}

// lost says whether that answer means that the GPU no longer works.
func lost(r nvml.Return) bool {
	return r == nvml.ERROR_GPU_IS_LOST || r == nvml.ERROR_RESET_REQUIRED || r == nvml.ERROR_GPU_NOT_FOUND
}

// asking notes whether any answer of a GPU says that it is lost. Anything else that NVML does not answer stays
// unknown.
type asking struct{ lost nvml.Return }

func (a *asking) ok(r nvml.Return) bool {
	if lost(r) {
		a.lost = r
	}
	return r == nvml.SUCCESS
}

// describe asks everything about a GPU. If it is lost, its description stays as it was and says so.
func (l *library) describe(c *card) {
	d, a := Device{Index: c.Index, NUMA: -1, MemoryNUMA: -1}, new(asking)
	if v, r := c.nvml.GetUUID(); a.ok(r) {
		d.UUID = v
	}
	if v, r := c.nvml.GetName(); a.ok(r) {
		d.Name = v
	}
	if v, r := c.nvml.GetPciInfo(); a.ok(r) {
		d.PCI = address(v)
		d.NUMA = l.host.numa(d.PCI)
	}
	if l.can("nvmlDeviceGetNumaNodeId") {
		if v, r := c.nvml.GetNumaNodeId(); a.ok(r) {
			d.MemoryNUMA = v
		}
	}
	if v, r := c.nvml.GetMemoryInfo(); a.ok(r) {
		d.Memory = v.Total
	}
	if v, r := c.nvml.GetBAR1MemoryInfo(); a.ok(r) {
		d.BAR1 = v.Bar1Total
	}
	l.mig(c.nvml, &d, a)
	d.Links = l.links(c.nvml, a)
	d.Fabric = l.fabric(c.nvml, a)
	if a.lost == nvml.SUCCESS {
		c.Device = d
		return
	}
	// Of a GPU that was lost from the start, what could still be read is better than nothing.
	if c.UUID == "" {
		c.Device = d
	}
	c.Lost = true
	c.Problem = fmt.Sprintf("%s: restart the node or reset the GPU (nvidia-smi --gpu-reset, with everything stopped that uses it)", oneLine(a.lost.Error()))
}

// news asks about what may change without an event: whether the GPU is there, its MIG mode and instances, its place
// in the fabric. It says whether any of that differs.
func (l *library) news(c *card) bool {
	var d Device
	a := new(asking)
	_, r := c.nvml.GetBAR1MemoryInfo()
	a.ok(r)
	l.mig(c.nvml, &d, a)
	if (a.lost != nvml.SUCCESS) != c.Lost {
		return true
	}
	return !c.Lost && (d.MIG != c.MIG || len(d.Instances) != len(c.Instances) || !sameInstances(d.Instances, c.Instances) || l.fabric(c.nvml, a) != c.Fabric)
}

func sameInstances(a, b []Instance) bool {
	for i := range a {
		if a[i].UUID != b[i].UUID {
			return false
		}
	}
	return true
}

// address writes a PCI address as sysfs does.
func address(p nvml.PciInfo) string {
	function := byte('0')
	var id []byte
	for _, c := range p.BusId {
		if c == 0 {
			break
		}
		id = append(id, byte(c))
	}
	if len(id) >= 2 && id[len(id)-2] == '.' {
		function = id[len(id)-1]
	}
	return fmt.Sprintf("%04x:%02x:%02x.%c", p.Domain, p.Bus, p.Device, function)
}
