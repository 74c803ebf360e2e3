//go:build cgo

package gpu

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// arm subscribes to the errors of all GPUs that report errors, are not lost, and are not in the set yet, as after a call
// that failed.
func (l *library) arm() {
	if l.events == nil {
		set, r := l.nvml.EventSetCreate()
		if r != nvml.SUCCESS {
			return
		}
		l.events = set
	}
	for _, c := range l.cards {
		if c.dead || c.Lost || c.heard {
			continue
		}
		if can, r := c.nvml.GetSupportedEventTypes(); r != nvml.SUCCESS || can&nvml.EventTypeXidCriticalError == 0 {
			continue
		}
		if c.nvml.RegisterEvents(nvml.EventTypeXidCriticalError, l.events) == nvml.SUCCESS {
			c.heard, l.armed = true, true
		}
	}
}

func (l *library) disarm() {
	if l.events != nil {
		_ = l.events.Free()
	}
	l.events, l.armed = nil, false
	for _, c := range l.cards {
		c.heard = false
	}
}

func (l *library) ask() (report, answer) {
	if !l.armed {
		return report{}, useless
	}
	e, r := l.events.Wait(0)
	switch r {
	case nvml.SUCCESS:
		if e.EventType != nvml.EventTypeXidCriticalError {
			return report{}, nothing
		}
		return l.report(e)
	case nvml.ERROR_TIMEOUT:
		return report{}, nothing
	}
	l.disarm() // a set with a lost GPU fails again and again; read makes one without it
	return report{}, failed
}

// report finds out whose error it is. NVML names the GPU even if the error is of an instance.
func (l *library) report(e nvml.EventData) (report, answer) {
	uuid, r := e.Device.GetUUID()
	if r != nvml.SUCCESS {
		// A GPU that fell off the bus cannot say who it is; the handle can.
		for _, c := range l.cards {
			if c.nvml == e.Device {
				uuid = c.UUID
			}
		}
	}
	out := report{uuid: uuid, code: e.EventData}
	for _, c := range l.cards {
		if c.UUID != uuid {
			continue
		}
		for _, i := range c.Instances {
			// Neither number is known of some instances: -1, which looks like what NVML says of the GPU as a whole.
			if i.GPU >= 0 && uint32(i.GPU) == e.GpuInstanceId && uint32(i.Compute) == e.ComputeInstanceId {
				out.instance = i.UUID
			}
		}
	}
	return out, arrived
}
