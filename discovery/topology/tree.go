package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/kvpipe/kvpipe/discovery/internal/sysfs"
)

// tree is a /sys and its NUMA nodes.
type tree struct {
	root  string
	nodes []Node
}

// place finds where a device is.
func (s tree) place(d *Device, pci string, numa int) {
	d.Node, d.Bridges = numa, []string{}
	defer func() { d.CPUs = s.near(d) }()
	if pci == "" {
		d.Problem = "its PCI address is not known"
		return
	}
	addr, err := Address(pci)
	if err != nil {
		d.PCI, d.Problem = pci, err.Error()
		return
	}
	d.PCI = addr
	path, err := filepath.EvalSymlinks(filepath.Join(s.root, "bus/pci/devices", addr))
	if err != nil {
		d.Problem = fmt.Sprintf("%s is not in /sys: it went away, or this container does not see it", addr)
		return
	}
	top := s.climb(d, path)
	if top == "" {
		d.Problem = fmt.Sprintf("%s is at %s, which is below no PCI root complex", addr, path)
		return
	}
	if target, err := os.Readlink(filepath.Join(path, "physfn")); err == nil {
		d.VirtualOf = filepath.Base(target)
	}
	if n := s.node(path, top); n >= 0 {
		d.Node = n
	}
	if len(s.nodes) == 1 { // kernels of machines with one node do not report it
		d.Node = s.nodes[0].ID
	}
}

var rootName = regexp.MustCompile(`^pci[0-9a-f]{4,8}:[0-9a-f]{2}$`)

// climb notes the root complex and the bridges on the way to a device, and returns the folder of the root complex.
// Other PCI functions on the way count as bridges (a domain within a domain, as of storage controllers that are host
// bridges of their own).
func (s tree) climb(d *Device, path string) (top string) {
	parts := strings.Split(path, string(filepath.Separator))
	for i, p := range parts[:len(parts)-1] {
		switch {
		case top != "":
			if sysfs.IsFunction(p) {
				d.Bridges = append(d.Bridges, p)
			}
		case rootName.MatchString(p):
			d.Root, top = p, strings.Join(parts[:i+1], string(filepath.Separator))
		}
	}
	return top
}

// node reads the NUMA node of a device, or of the nearest bridge above it that has one: virtual functions, and
// devices of some firmwares, have none themselves.
func (s tree) node(path, top string) int {
	for ; len(path) > len(top); path = filepath.Dir(path) {
		if n := sysfs.NUMA(path); n >= 0 {
			return n
		}
	}
	return -1
}

// near returns the CPUs near a device: those of its node, or what /sys says of the device if that node is unknown or
// has none.
func (s tree) near(d *Device) string {
	for _, n := range s.nodes {
		if n.ID == d.Node && n.CPUs != "" {
			return n.CPUs
		}
	}
	return sysfs.Text(s.root, "bus/pci/devices", d.PCI, "local_cpulist")
}

// Address returns a PCI address as /sys writes it. It accepts the forms of /sys and of NVML, both also without a
// domain.
func Address(s string) (string, error) {
	bad := fmt.Errorf("PCI address %q: want DOMAIN:BUS:DEVICE.FUNCTION in hexadecimal, as 0000:1b:00.0", s)
	parts := strings.Split(s, ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 3 {
		return "", bad
	}
	device, function, ok := strings.Cut(parts[2], ".")
	if !ok {
		return "", bad
	}
	var n [4]uint64
	for i, f := range []struct {
		text string
		bits int
	}{{parts[0], 32}, {parts[1], 8}, {device, 5}, {function, 3}} {
		var err error
		if n[i], err = strconv.ParseUint(f.text, 16, f.bits); err != nil {
			return "", bad
		}
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", n[0], n[1], n[2], n[3]), nil
}
