package nic

import (
	"cmp"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kvpipe/kvpipe/discovery/internal/sysfs"
)

// names lists a folder. A missing folder has no names.
func names(elem ...string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(elem...))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, nil
}

// numbers returns the names that are numbers, in ascending order.
func numbers(names []string) (out []int) {
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil && n >= 0 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// devices lists RDMA devices, as described in Linux's Documentation/ABI/stable/sysfs-class-infiniband. Netlink's RDMA
// family has neither GIDs nor rates. It is no error if there are none.
func (s Source) devices() ([]Device, error) {
	found, err := names(s.class("infiniband"))
	var out []Device
	for _, name := range found {
		dir := filepath.Join(s.class("infiniband"), name)
		d := Device{Name: name, NodeGUID: sysfs.Text(dir, "node_guid"), Firmware: sysfs.Text(dir, "fw_ver")}
		d.PCI, d.NUMA = place(dir)
		ports, err := names(dir, "ports")
		if err != nil {
			continue // it is just being removed
		}
		for _, n := range numbers(ports) {
			d.Ports = append(d.Ports, port(dir, n))
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	return out, err
}

func port(device string, n int) Port {
	dir := filepath.Join(device, "ports", strconv.Itoa(n))
	_, state, _ := strings.Cut(sysfs.Text(dir, "state"), ": ") // "4: ACTIVE"
	p := Port{Number: n, State: state, LinkLayer: sysfs.Text(dir, "link_layer")}
	p.SpeedMbps, _ = parseRate(sysfs.Text(dir, "rate"))
	all, _ := names(dir, "gids") // on an error the port has no GIDs, and its readers are told so
	for _, i := range numbers(all) {
		if g, ok := gid(dir, i); ok {
			p.GIDs = append(p.GIDs, g)
		}
	}
	p.Netdev = netdev(device, n, p.GIDs)
	return p
}

// gid reads an entry of the table; false if it is empty.
func gid(port string, i int) (GID, bool) {
	index := strconv.Itoa(i)
	addr, err := netip.ParseAddr(sysfs.Text(port, "gids", index))
	if err != nil || addr.IsUnspecified() {
		return GID{}, false
	}
	g := GID{Index: i, GID: addr, Type: GIDType(sysfs.Text(port, "gid_attrs", "types", index)), Netdev: sysfs.Text(port, "gid_attrs", "ndevs", index)}
	if g.Type == "IB/RoCE v1" { // the kernel's name for both, on a port of either kind
		g.Type = TypeRoCEv1
		if sysfs.Text(port, "link_layer") == "InfiniBand" {
			g.Type = TypeIB
		}
	}
	return g, true
}

// netdev finds the link that belongs to a port: from its GIDs (RoCE), from its function's links (InfiniBand), or from
// what a software device was made of.
func netdev(device string, port int, gids []GID) string {
	for _, g := range gids {
		if g.Netdev != "" {
			return g.Netdev
		}
	}
	links, _ := names(device, "device", "net") // none: a software device
	for _, name := range links {
		dir := filepath.Join(device, "device", "net", name)
		if at := max(number(dir, "dev_port"), number(dir, "dev_id")); at == port-1 {
			return name
		}
	}
	return sysfs.Text(device, "parent")
}

// join notes at each link its RDMA port, and the speed where only the port knows it.
func (s Source) join(v *Inventory) {
	for _, d := range v.Devices {
		for _, p := range d.Ports {
			i := slices.IndexFunc(v.Links, func(l Link) bool { return l.Name == p.Netdev })
			if i < 0 || v.Links[i].RDMA != nil {
				continue
			}
			l := &v.Links[i]
			l.RDMA = &PortRef{Device: d.Name, Port: p.Number}
			if l.SpeedMbps == 0 && p.LinkLayer == "InfiniBand" {
				l.SpeedMbps = p.SpeedMbps
			}
		}
	}
}
