//go:build cgo

package gpu

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const libraryName = "libnvidia-ml.so.1"

// Larger counts from NVML are not believed.
const (
	maxGPUs  = 1024
	maxParts = 64 // MIG instances of a GPU
)

// needed are the functions without which nothing works; drivers have had them since R450 (2020). go-nvml binds each
// function when it is first called, and a missing one ends the process. So no function is called that was not looked
// up.
var needed = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
	"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetBAR1MemoryInfo",
	"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlEventSetWait_v2", "nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes",
}

// library is NVML between open and close.
type library struct {
	path   string
	host   host
	nvml   nvml.Interface
	has    map[string]bool // by function, whether this NVML has it
	driver string
	cuda   string
	cards  []*card
	kernel []string // the GPUs that the kernel driver had when NVML started
	events nvml.EventSet
	armed  bool // events covers at least one GPU
}

// card is one GPU and NVML's handle of it.
type card struct {
	nvml nvml.Device
	Device
	dead  bool // there is not even a handle
	heard bool // its errors are among the events
}

func newSource(c Config) (source, Inventory) {
	return &library{path: cmp.Or(c.Library, libraryName), host: host(c.Root)}, Inventory{}
}

func (l *library) open() Inventory {
	l.driver, l.cuda = "", "" // another driver may be loaded by now, or none
	if why := l.load(); why.State != OK {
		return why
	}
	l.nvml = nvml.New(nvml.WithLibraryPath(l.path))
	l.has = map[string]bool{}
	if r := l.nvml.Init(); r != nvml.SUCCESS {
		return l.refused(r)
	}
	l.driver, _ = l.nvml.SystemGetDriverVersion()
	l.cuda = l.cudaVersion()
	l.kernel, _ = l.host.gpus()
	count, r := l.nvml.DeviceGetCount()
	if r != nvml.SUCCESS || count == 0 {
		i := Inventory{State: NoGPU, Reason: "the driver has no GPU", Driver: l.driver, CUDA: l.cuda}
		if r != nvml.SUCCESS {
			i = l.refused(r)
		}
		_ = l.nvml.Shutdown()
		return i
	}
	if count > maxGPUs {
		_ = l.nvml.Shutdown()
		return Inventory{State: Failed, Reason: fmt.Sprintf("NVML counts %d GPUs, and no machine has more than %d", count, maxGPUs), Fix: "see what nvidia-smi says", Driver: l.driver, CUDA: l.cuda}
	}
	l.cards = nil
	for n := range count {
		l.cards = append(l.cards, l.card(n))
	}
	return l.read()
}

// load checks that the library is there and is an NVML, before anything in it is called.
func (l *library) load() Inventory {
	d := dl.New(l.path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := d.Open(); err != nil {
		return Inventory{
			State: NoLibrary, Reason: fmt.Sprintf("NVML cannot be loaded: %s", oneLine(err.Error())),
			Fix: "nothing, if this node has no GPU; else install NVIDIA's driver, in a container run with NVIDIA's runtime and the capability \"utility\", or set gpu.nvml to the library's path",
		}
	}
	defer func() { _ = d.Close() }()
	for _, f := range needed {
		if d.Lookup(f) != nil {
			return Inventory{State: Failed, Reason: fmt.Sprintf("%s has no %s", l.path, f), Fix: "install a driver of branch R450 or newer; if gpu.nvml is set, see that it names libnvidia-ml.so.1"}
		}
	}
	return Inventory{State: OK}
}

// refused says in words why NVML did not start.
func (l *library) refused(r nvml.Return) Inventory {
	i := Inventory{Driver: l.driver, CUDA: l.cuda}
	switch r {
	case nvml.ERROR_DRIVER_NOT_LOADED:
		i.State, i.Reason = NoDriver, "NVML is there, but the kernel driver is not loaded"
		i.Fix = "nothing, if this node has no GPU; else modprobe nvidia, and see the kernel's log when that fails"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		i.State, i.Reason = Mismatch, "library and kernel driver are of different versions, as after an upgrade of the driver"
		if _, v := l.host.module(); v != "" {
			i.Reason += fmt.Sprintf(" (the kernel has %s)", v)
		}
		i.Fix = "load the new kernel module (stop what uses GPUs, rmmod and modprobe nvidia, or reboot), then restart kvpiped; engines may go on"
	case nvml.ERROR_NO_PERMISSION, nvml.ERROR_INSUFFICIENT_POWER:
		i.State, i.Reason = NoPermission, "NVML may not talk to the driver: "+oneLine(r.Error())
		i.Fix = "let kvpiped's user open /dev/nvidiactl and /dev/nvidia0, ... (their group, DeviceAllow= in the unit, the device cgroup of the container); systemctl restart kvpiped, if the driver was loaded after it started"
	case nvml.ERROR_GPU_NOT_FOUND, nvml.ERROR_NOT_FOUND:
		i.State, i.Reason = NoGPU, "the driver has no GPU"
	default:
		i.State, i.Reason = Failed, fmt.Sprintf("NVML does not start: %s (%d)", oneLine(r.Error()), int(r))
		i.Fix = "see what nvidia-smi and the kernel's log say"
	}
	return i
}

func (l *library) cudaVersion() string {
	if !l.can("nvmlSystemGetCudaDriverVersion_v2") {
		return ""
	}
	v, r := l.nvml.SystemGetCudaDriverVersion_v2()
	if r != nvml.SUCCESS || v <= 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
}

// can says whether this NVML has a function. Older drivers lack the newer ones.
func (l *library) can(function string) bool {
	ok, known := l.has[function]
	if !known {
		ok = l.nvml.Extensions().LookupSymbol(function) == nil
		l.has[function] = ok
	}
	return ok
}

// read describes all GPUs anew. A lost one keeps the description it had, and its errors are not asked for.
func (l *library) read() Inventory {
	dma, why := l.host.dmaBuf()
	i := Inventory{State: OK, Driver: l.driver, CUDA: l.cuda}
	rearm := false
	for n, c := range l.cards {
		if c.dead {
			c = l.card(n)
			rearm = rearm || !c.dead
			l.cards[n] = c
		}
		was := c.Lost
		if !c.dead {
			l.describe(c)
		}
		rearm = rearm || c.Lost != was
		d := c.Device
		d.DMABuf, d.WhyDMABuf = dma, why
		i.Devices = append(i.Devices, d)
	}
	if rearm {
		l.disarm()
	}
	l.arm()
	return i
}

// look asks each GPU only a little, because reading all of its NVLinks would take milliseconds of the driver's time.
func (l *library) look() verdict {
	count, r := l.nvml.DeviceGetCount()
	if r != nvml.SUCCESS || count != len(l.cards) {
		return gone
	}
	if now, ok := l.host.gpus(); ok && !slices.Equal(now, l.kernel) {
		return gone
	}
	for _, c := range l.cards {
		if !c.dead && l.news(c) {
			return changed
		}
	}
	return same
}

func (l *library) close() {
	l.disarm()
	l.cards = nil
	_ = l.nvml.Shutdown()
}
