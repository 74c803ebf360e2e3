//go:build cgo

package gpu

import (
	"fmt"
	"math"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// mig fills in whether the GPU is split, and into which instances.
func (l *library) mig(gpu nvml.Device, d *Device, a *asking) {
	if !l.can("nvmlDeviceGetMigMode") || !l.can("nvmlDeviceGetMaxMigDeviceCount") || !l.can("nvmlDeviceGetMigDeviceHandleByIndex") {
		return
	}
	mode, _, r := gpu.GetMigMode()
	if !a.ok(r) || mode != nvml.DEVICE_MIG_ENABLE {
		return
	}
	d.MIG = true
	most, r := gpu.GetMaxMigDeviceCount()
	if !a.ok(r) {
		return
	}
	for n := range min(most, maxParts) {
		if part, r := gpu.GetMigDeviceHandleByIndex(n); a.ok(r) { // an error means that the place is free
			d.Instances = append(d.Instances, l.instance(part, d.Memory, a))
		}
	}
}

func (l *library) instance(part nvml.Device, whole uint64, a *asking) Instance {
	i := Instance{GPU: -1, Compute: -1}
	if v, r := part.GetUUID(); a.ok(r) {
		i.UUID = v
	}
	if l.can("nvmlDeviceGetGpuInstanceId") && l.can("nvmlDeviceGetComputeInstanceId") {
		if v, r := part.GetGpuInstanceId(); a.ok(r) {
			i.GPU = v
		}
		if v, r := part.GetComputeInstanceId(); a.ok(r) {
			i.Compute = v
		}
	}
	if l.can("nvmlDeviceGetAttributes_v2") {
		if v, r := part.GetAttributes(); a.ok(r) {
			i.Memory = v.MemorySizeMB << 20
			i.Profile = profile(v.ComputeInstanceSliceCount, v.GpuInstanceSliceCount, i.Memory, whole)
		}
	}
	// Some drivers put the profile into the name: "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
	if v, r := part.GetName(); a.ok(r) {
		if _, p, ok := strings.Cut(v, " MIG "); ok {
			i.Profile = p
		}
	}
	return i
}

// profile names an instance as nvidia-smi does, "3g.40gb" or "1c.3g.40gb". Memory is in whole GiB, rounded up to
// eighths of the GPU's.
func profile(compute, slices uint32, memory, whole uint64) string {
	if slices == 0 || whole == 0 {
		return ""
	}
	const gib = 1 << 30
	eighths := math.Ceil(float64(memory) / float64(whole) * 8)
	size := math.Round(eighths / 8 * math.Ceil(float64(whole)/gib))
	name := fmt.Sprintf("%dg.%dgb", slices, int(size))
	if compute != slices && compute != 0 {
		name = fmt.Sprintf("%dc.%s", compute, name)
	}
	return name
}
