package nic

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kvpipe/kvpipe/discovery/internal/sysfs"
)

func (s Source) class(name string) string {
	root := s.Sys
	if root == "" {
		root = "/sys"
	}
	return filepath.Join(root, "class", name)
}

// describe adds what sysfs knows of a link. The sysfs of another network namespace has other links, perhaps with the
// same names, so the index must match.
func (s Source) describe(l *Link) {
	dir := filepath.Join(s.class("net"), l.Name)
	if number(dir, "ifindex") != l.Index {
		return
	}
	l.SpeedMbps = max(number(dir, "speed"), 0) // -1 and errors: unknown, or no carrier
	l.PCI, l.NUMA = place(dir)
}

// unknownSpeed is what some drivers say instead of -1.
const unknownSpeed = 1<<32 - 1

// number reads a number from a file, in hexadecimal if it begins with 0x (dev_id); 0 if there is none.
func number(elem ...string) int {
	n, err := strconv.ParseInt(sysfs.Text(elem...), 0, strconv.IntSize)
	if err != nil || n == unknownSpeed {
		return 0
	}
	return int(n)
}

// place finds the PCI function behind the "device" of a sysfs folder, and its NUMA node. Other devices, such as
// virtio0, may lie in between.
func place(dir string) (pci string, numa int) {
	at, err := filepath.EvalSymlinks(filepath.Join(dir, "device"))
	if err != nil {
		return "", -1
	}
	for ; len(at) > 1; at = filepath.Dir(at) {
		if name := filepath.Base(at); sysfs.IsFunction(name) {
			return name, sysfs.NUMA(at)
		}
	}
	return "", -1
}

// inherit gives a virtual link the place of the links that it lies on (a bond that of its NICs, a VLAN that of its
// link), if they agree.
func (s Source) inherit(links []Link) {
	for i := range links {
		if l := &links[i]; l.PCI == "" {
			l.PCI, l.NUMA = "", -1
			for j, low := range s.lowest(links, l.Name, 4) {
				if j == 0 {
					l.PCI, l.NUMA = low.PCI, low.NUMA
				}
				if l.PCI != low.PCI {
					l.PCI = ""
				}
				if l.NUMA != low.NUMA {
					l.NUMA = -1
				}
			}
		}
	}
}

// lowest returns the links with a PCI function that a link lies on. Others, such as taps of guests in a bridge, are
// skipped.
func (s Source) lowest(links []Link, name string, depth int) (found []Link) {
	entries, _ := names(s.class("net"), name) // an error means that it is just being removed
	for _, entry := range entries {
		below, lower := strings.CutPrefix(entry, "lower_")
		i := slices.IndexFunc(links, func(l Link) bool { return l.Name == below })
		switch {
		case !lower || i < 0 || depth == 0:
		case links[i].PCI != "":
			found = append(found, links[i])
		default:
			found = append(found, s.lowest(links, below, depth-1)...)
		}
	}
	return found
}
