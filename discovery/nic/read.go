package nic

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
)

// Source is where inventories are read from.
type Source struct {
	Sys string // root of sysfs; "": /sys
}

// attempts bounds how often a list is asked for again because it changed while the kernel made it.
const attempts = 5

// Read takes an inventory. It takes about a millisecond, and may be called from any goroutine.
func (s Source) Read() *Inventory { return s.read(nil) }

// read is Read. As long as links cannot be read, the known ones stay: who heard that no link is there would leave those
// that are.
func (s Source) read(known []Link) *Inventory {
	v := &Inventory{State: Complete}
	var reasons []string
	fail := func(what string, err error) {
		if err != nil {
			v.State = Partial
			reasons = append(reasons, fmt.Sprintf("%s: %v", what, explain(err)))
		}
	}
	var err error
	if v.Links, err = s.links(); err != nil {
		v.Links = slices.Clone(known)
		for i := range v.Links {
			v.Links[i].RDMA = nil // see join
		}
	}
	unknown := err != nil
	fail("links and addresses (netlink)", err)
	v.Devices, err = s.devices()
	fail("RDMA devices (sysfs)", err)
	s.join(v)
	if unknown && len(v.Links)+len(v.Devices) == 0 {
		v.State = Unknown
	}
	v.Reason = strings.Join(reasons, "; ")
	return v
}

// explain adds what a system call's error means for whoever runs the daemon.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.EAFNOSUPPORT):
		return fmt.Errorf("%w: netlink is forbidden here; allow AF_NETLINK in the sandbox (systemd: RestrictAddressFamilies=)", err)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w: forbidden here by a sandbox (seccomp or a security module)", err)
	}
	return err
}

// links lists the links with their addresses.
func (s Source) links() ([]Link, error) {
	all, err := dump(netlink.LinkList)
	if err != nil {
		return nil, err
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	names := map[int]string{}
	for _, l := range all {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	out := make([]Link, 0, len(all))
	for _, l := range all {
		a := l.Attrs()
		link := Link{
			Name: a.Name, Index: a.Index, MAC: a.HardwareAddr.String(), MTU: a.MTU, Kind: kind(l), NUMA: -1,
			Up: a.RawFlags&syscall.IFF_UP != 0 && a.RawFlags&syscall.IFF_RUNNING != 0, Master: names[a.MasterIndex], Addresses: addresses(addrs, a.Index),
		}
		s.describe(&link)
		out = append(out, link)
	}
	slices.SortFunc(out, func(a, b Link) int { return a.Index - b.Index })
	s.inherit(out)
	return out, nil
}

// dump asks again for a list that changed while it was made. The last attempt is taken as it is: the change also
// comes as an event.
func dump[T any](list func() ([]T, error)) (all []T, err error) {
	for range attempts {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, nil
}

func kind(l netlink.Link) string {
	switch a := l.Attrs(); {
	case a.RawFlags&syscall.IFF_LOOPBACK != 0:
		return "loopback"
	case l.Type() != "device":
		return l.Type()
	case a.EncapType == "ether":
		return "ethernet"
	default:
		return a.EncapType
	}
}

// Address flags of linux/if_addr.h. Package syscall lacks some of them.
const (
	addrTemporary  = 0x01 // of IPv6; of IPv4: secondary
	addrDADFailed  = 0x08
	addrDeprecated = 0x20
	addrTentative  = 0x40
)

// addresses returns the usable addresses of a link, lasting ones first.
func addresses(all []netlink.Addr, index int) []netip.Prefix {
	var lasting, passing []netip.Prefix
	for _, a := range all {
		if a.LinkIndex != index || a.IPNet == nil || a.Flags&(addrDADFailed|addrTentative) != 0 {
			continue
		}
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok {
			continue
		}
		bits, _ := a.Mask.Size()
		p := netip.PrefixFrom(ip.Unmap(), bits)
		if a.Flags&(addrTemporary|addrDeprecated) != 0 {
			passing = append(passing, p)
		} else {
			lasting = append(lasting, p)
		}
	}
	return append(lasting, passing...)
}
