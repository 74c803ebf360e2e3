// Package nic owns what a node knows of its network: links, their addresses, and RDMA devices with their ports and
// GIDs. It asks the kernel by netlink and sysfs, and follows changes. If either cannot be read it does not fail: the
// inventory says what is missing.
package nic

import (
	"net/netip"
	"slices"
)

// State says how complete an inventory is.
type State string

const (
	// Complete: everything was read.
	Complete State = "complete"
	// Partial: something could not be read; Inventory.Reason says what and why.
	Partial State = "partial"
	// Unknown: nothing could be read, for example where netlink is forbidden.
	Unknown State = "unknown"
)

// Inventory is the network of this node (more precisely, of this process's network namespace) at one moment. Once
// handed out it never changes, and any goroutine may read it.
type Inventory struct {
	State   State
	Reason  string   // of Partial and Unknown
	Links   []Link   // by index; the last known ones where State is Partial and they could not be read
	Devices []Device // by name; none without RDMA
}

// Link is a network interface.
type Link struct {
	Name      string
	Index     int    // the kernel's; a renamed link keeps it
	MAC       string // "" none
	MTU       int    // bytes
	Kind      string // "ethernet", "infiniband", "loopback", or what the kernel calls a virtual one: "veth", "bond", "vlan", ...
	Up        bool   // administratively up, and with carrier
	SpeedMbps int    // 0 unknown
	PCI       string // address of its function, as 0000:17:00.0; "" for virtual ones, unless all links below agree
	NUMA      int    // node of that function; -1 unknown
	Master    string // the bond or bridge that it is part of
	Addresses []netip.Prefix
	RDMA      *PortRef // nil: none
}

// PortRef names a port of an RDMA device.
type PortRef struct {
	Device string
	Port   int // from 1
}

// Device is an RDMA device.
type Device struct {
	Name     string
	NodeGUID string // as sysfs has it, 0c42:a103:0065:7a5e
	PCI      string // "" for software ones
	NUMA     int    // -1 unknown
	Firmware string // version
	Ports    []Port // by number
}

// Port is a port of an RDMA device.
type Port struct {
	Number    int    // from 1
	State     string // "ACTIVE", "DOWN", "INIT", "ARMED", ...
	LinkLayer string // "Ethernet" or "InfiniBand"
	SpeedMbps int    // lanes times their rate, as the kernel multiplies them; 0 unknown
	Netdev    string // the link on the same wire; "": none
	GIDs      []GID  // by index, without empty ones
}

// GIDType says what packets with a GID look like on the wire.
type GIDType string

// The types, as the kernel calls them.
const (
	TypeIB     GIDType = "IB"
	TypeRoCEv1 GIDType = "RoCE v1"
	TypeRoCEv2 GIDType = "RoCE v2"
)

// GID is an entry of a port's table. Entries move when addresses change, so an index is valid only until the
// inventory changes.
type GID struct {
	Index  int
	GID    netip.Addr // as IPv6; IPv4 is mapped (::ffff:10.0.0.1)
	Type   GIDType
	Netdev string
}

// Link finds a link by its name.
func (v *Inventory) Link(name string) (Link, bool) {
	i := slices.IndexFunc(v.Links, func(l Link) bool { return l.Name == name })
	if i < 0 {
		return Link{}, false
	}
	return v.Links[i], true
}

// Holder finds the link that has an address.
func (v *Inventory) Holder(a netip.Addr) (Link, bool) {
	a = a.Unmap().WithZone("")
	i := slices.IndexFunc(v.Links, func(l Link) bool {
		return slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
	})
	if i < 0 {
		return Link{}, false
	}
	return v.Links[i], true
}
