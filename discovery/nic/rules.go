package nic

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// Rules say which links the daemon may use, by names or globs (as in path.Match) of links or of their RDMA devices.
type Rules struct {
	Allow []string // empty: everything that looks like a NIC
	Deny  []string // wins over Allow
}

// matches says whether one of the patterns names the link or its RDMA device.
func matches(patterns []string, l Link) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		byName, _ := path.Match(p, l.Name) // a bad pattern names nothing; the configuration refuses it
		byDevice := false
		if l.RDMA != nil {
			byDevice, _ = path.Match(p, l.RDMA.Device)
		}
		return byName || byDevice
	})
}

// Refuses says why a link is not used; "" if it is.
func (r Rules) Refuses(l Link) string {
	switch {
	case l.Kind == "loopback":
		return "loopback"
	case matches(r.Deny, l):
		return "nic_deny names it"
	case len(r.Allow) > 0 && !matches(r.Allow, l):
		return "nic_allow does not name it"
	case len(r.Allow) == 0 && !isNIC(l):
		return fmt.Sprintf("a virtual link (%s); nic_allow can name it", l.Kind)
	case !l.Up:
		return "down"
	case len(routable(l)) == 0:
		return "no routable address"
	}
	return ""
}

// isNIC tells links that lead to other nodes from those that lead to guests and containers on this one. A veth
// counts, because inside a container it is the way out.
func isNIC(l Link) bool {
	if l.PCI != "" {
		return true
	}
	return slices.Contains([]string{"ethernet", "infiniband", "ipoib", "bond", "team", "vlan", "macvlan", "ipvlan", "veth"}, l.Kind)
}

// Routable returns the addresses of a link that other nodes can use: the first of each family.
func (r Rules) Routable(l Link) []netip.Addr {
	if r.Refuses(l) != "" {
		return nil
	}
	return routable(l)
}

func routable(l Link) (out []netip.Addr) {
	for _, p := range l.Addresses {
		a := p.Addr()
		same := func(b netip.Addr) bool { return a.Is4() == b.Is4() }
		if a.IsGlobalUnicast() && !slices.ContainsFunc(out, same) {
			out = append(out, a)
		}
	}
	return out
}

// Missing returns the entries of Allow that name no link and no device of the inventory.
func (r Rules) Missing(v *Inventory) []string { return unnamed(r.Allow, v) }

// MissingDenied returns such entries of Deny. It leaves out globs, which are meant for links that may come.
func (r Rules) MissingDenied(v *Inventory) []string {
	return slices.DeleteFunc(unnamed(r.Deny, v), func(p string) bool { return strings.ContainsAny(p, `*?[\`) })
}

func unnamed(patterns []string, v *Inventory) (out []string) {
	for _, p := range patterns {
		named := slices.ContainsFunc(v.Links, func(l Link) bool { return matches([]string{p}, l) }) ||
			slices.ContainsFunc(v.Devices, func(d Device) bool { ok, _ := path.Match(p, d.Name); return ok })
		if !named {
			out = append(out, p)
		}
	}
	return out
}
