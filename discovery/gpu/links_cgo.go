//go:build cgo

package gpu

import (
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

var linkVersions = map[uint32]string{1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"} // nvmlNvlinkVersion_t

// links lists the NVLinks that the GPU has.
func (l *library) links(gpu nvml.Device, a *asking) []Link {
	if !l.can("nvmlDeviceGetNvLinkState") {
		return nil
	}
	var out []Link
	for n := range nvml.NVLINK_MAX_LINKS {
		state, r := gpu.GetNvLinkState(n)
		if !a.ok(r) { // the GPU has no link of that number
			continue
		}
		k := Link{Number: n, Active: state == nvml.FEATURE_ENABLED, Remote: RemoteUnknown}
		if k.Active {
			l.link(gpu, &k, a)
		}
		out = append(out, k)
	}
	return out
}

// link describes an NVLink that is up.
func (l *library) link(gpu nvml.Device, k *Link, a *asking) {
	if l.can("nvmlDeviceGetNvLinkVersion") {
		if v, r := gpu.GetNvLinkVersion(k.Number); a.ok(r) {
			k.Version = linkVersions[v]
		}
	}
	if l.can("nvmlDeviceGetNvLinkRemoteDeviceType") {
		if v, r := gpu.GetNvLinkRemoteDeviceType(k.Number); a.ok(r) {
			switch v {
			case nvml.NVLINK_DEVICE_TYPE_GPU:
				k.Remote = RemoteGPU
			case nvml.NVLINK_DEVICE_TYPE_SWITCH:
				k.Remote = RemoteSwitch
			}
		}
	}
	if l.can("nvmlDeviceGetNvLinkRemotePciInfo_v2") {
		if v, r := gpu.GetNvLinkRemotePciInfo(k.Number); a.ok(r) && v.Domain|v.Bus|v.Device != 0 {
			k.PCI = address(v)
		}
	}
	if l.can("nvmlDeviceGetFieldValues") {
		ask := []nvml.FieldValue{{FieldId: nvml.FI_DEV_NVLINK_GET_SPEED, ScopeId: uint32(k.Number)}}
		if r := gpu.GetFieldValues(ask); a.ok(r) && nvml.Return(ask[0].NvmlReturn) == nvml.SUCCESS {
			k.Speed = number(ask[0]) * 1e6 // MB/s
		}
	}
}

// number reads a value of the unsigned types.
func number(v nvml.FieldValue) uint64 {
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return uint64(binary.NativeEndian.Uint32(v.Value[:]))
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return binary.NativeEndian.Uint64(v.Value[:])
	}
	return 0
}

// fabric returns the GPU's place in a fabric of NVSwitches (Hopper and newer).
func (l *library) fabric(gpu nvml.Device, a *asking) Fabric {
	var state uint8
	var uuid [16]uint8
	var clique, status uint32
	switch {
	case l.can("nvmlDeviceGetGpuFabricInfoV"):
		v, r := gpu.GetGpuFabricInfoV().V2()
		if !a.ok(r) {
			return Fabric{}
		}
		state, uuid, clique, status = v.State, v.ClusterUuid, v.CliqueId, v.Status
	case l.can("nvmlDeviceGetGpuFabricInfo"): // drivers before R550
		v, r := gpu.GetGpuFabricInfo()
		if !a.ok(r) {
			return Fabric{}
		}
		state, uuid, clique, status = v.State, v.ClusterUuid, v.CliqueId, v.Status
	}
	f := Fabric{Clique: clique}
	switch state {
	case nvml.GPU_FABRIC_STATE_NOT_STARTED:
		f.State = "not_started"
	case nvml.GPU_FABRIC_STATE_IN_PROGRESS:
		f.State = "in_progress"
	case nvml.GPU_FABRIC_STATE_COMPLETED:
		f.State = "completed"
	default:
		return Fabric{}
	}
	if uuid != [16]uint8{} {
		f.Cluster = fmt.Sprintf("%x-%x-%x-%x-%x", uuid[:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:])
	}
	if f.State == "completed" && nvml.Return(status) != nvml.SUCCESS {
		f.Status = oneLine(nvml.Return(status).Error())
	}
	return f
}
