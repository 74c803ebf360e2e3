package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kvpipe/kvpipe/discovery/internal/sysfs"
)

// host reads what the kernel tells, below a root.
type host string

func (h host) read(path string) string { return sysfs.Text(string(h), path) }

// numa returns the NUMA node of the memory next to a PCI device; -1: unknown.
func (h host) numa(pci string) int {
	return sysfs.NUMA(filepath.Join(string(h), "sys/bus/pci/devices", pci))
}

// gpus lists the PCI addresses of the GPUs that the kernel driver has, sorted; false if the driver does not say.
func (h host) gpus() ([]string, bool) {
	entries, err := os.ReadDir(filepath.Join(string(h), "proc/driver/nvidia/gpus"))
	if err != nil {
		return nil, false
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.ToLower(e.Name()))
	}
	slices.Sort(out)
	return out, true
}

var (
	moduleVersion = regexp.MustCompile(`\b\d{3,}(\.\d+)+\b`)
	kernelVersion = regexp.MustCompile(`^(\d+)\.(\d+)`)
)

// The first kernel in which NICs can register a dma-buf (ib_umem_dmabuf), and the file in which the driver says which
// module it is.
const (
	dmaBufMajor, dmaBufMinor = 5, 12
	moduleFile               = "proc/driver/nvidia/version"
)

// module returns the line in which the kernel module describes itself, and the version in that line; "" if it is not
// loaded.
func (h host) module() (line, version string) {
	line, _, _ = strings.Cut(h.read(moduleFile), "\n")
	return line, moduleVersion.FindString(line)
}

// dmaBuf says whether memory of this node's GPUs can be exported as dma-bufs, and how that was concluded. CUDA could
// be asked (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED), but only by starting it. The driver's own rule is this: its
// proprietary modules cannot use the kernel's dma-buf symbols. Its open modules do (nvidia/nv-dmabuf.c there) on
// every GPU that they serve, except on ppc64le and in the confidential computing mode of A100
// (NV2080_CTRL_GPU_INFO_INDEX_DMABUF_CAPABILITY), which neither NVML nor /proc tells.
func (h host) dmaBuf() (bool, string) {
	line, version := h.module()
	if line == "" {
		return false, fmt.Sprintf("unknown: /%s cannot be read, so it is not known which kernel module runs", moduleFile)
	}
	if !strings.Contains(line, "Open Kernel Module") {
		return false, strings.TrimSpace("the kernel module is the proprietary one "+version) + ": install NVIDIA's open kernel modules, or use nvidia-peermem"
	}
	release := h.read("proc/sys/kernel/osrelease")
	m := kernelVersion.FindStringSubmatch(release)
	if m == nil {
		return false, "unknown: the kernel's version cannot be read from /proc/sys/kernel/osrelease"
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if major < dmaBufMajor || major == dmaBufMajor && minor < dmaBufMinor {
		return false, fmt.Sprintf("kernel %s: NICs take dma-bufs from %d.%d on", release, dmaBufMajor, dmaBufMinor)
	}
	return true, fmt.Sprintf("open kernel module %s, kernel %s (derived from these, the driver was not asked)", version, release)
}
