package nic

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Choice is a GID and the reason why it was chosen.
type Choice struct {
	GID    GID
	Reason string
}

// AnyIndex lets ChooseGID choose.
const AnyIndex = -1

// ChooseGID picks the GID with which a port can talk to a peer at the address peer, of which only the family and the
// leading bits count. On Ethernet it is a RoCE v2 GID of the same family, and routable; a link-local one is taken
// only for a link-local peer or if there is nothing else. Of several, the one nearest to the peer is taken, by common
// leading bits, and then the first. fixed is the index that the configuration demands, or AnyIndex. An error says
// what the port has instead.
//
// Sources: RoCEv2 annex A17 of the InfiniBand specification; RFC 6724, rule 8 for "nearest".
func ChooseGID(p Port, peer netip.Addr, fixed int) (Choice, error) {
	peer = peer.Unmap()
	if fixed != AnyIndex {
		for _, g := range p.GIDs {
			if g.Index == fixed {
				return Choice{g, fmt.Sprintf("gid_index = %d says so", fixed)}, nil
			}
		}
		return Choice{}, fmt.Errorf("gid_index = %d: port %d has no such GID (%s); correct it, or leave it at %d to let the daemon choose", fixed, p.Number, p.has(), AnyIndex)
	}
	if p.LinkLayer == "InfiniBand" {
		return p.native()
	}
	var best *GID
	bits := -1
	for i := range p.GIDs {
		g := &p.GIDs[i]
		if !g.fits(peer) {
			continue
		}
		local, want := linkLocal(g.GID), peer.IsLinkLocalUnicast()
		n := 2 * common(g.GID.Unmap(), peer)
		if local == want {
			n += 1000
		}
		if n > bits {
			best, bits = g, n
		}
	}
	if best == nil {
		return Choice{}, fmt.Errorf("port %d has no RoCE v2 GID of %s (%s): give its link %q an address of that family", p.Number, family(peer), p.has(), p.Netdev)
	}
	return Choice{*best, reason(best, peer)}, nil
}

// WithoutGID lists the active ports, as "mlx5_0/1", that have no GID of that index; none for AnyIndex.
func (v *Inventory) WithoutGID(index int) (out []string) {
	for _, d := range v.Devices {
		for _, p := range d.Ports {
			if index != AnyIndex && p.State == "ACTIVE" && !slices.ContainsFunc(p.GIDs, func(g GID) bool { return g.Index == index }) {
				out = append(out, fmt.Sprintf("%s/%d", d.Name, p.Number))
			}
		}
	}
	return out
}

// native chooses on an InfiniBand fabric, where the peer's address does not matter.
func (p Port) native() (Choice, error) {
	for _, g := range p.GIDs {
		if g.Type == TypeIB {
			return Choice{g, "InfiniBand: the port's first GID"}, nil
		}
	}
	return Choice{}, fmt.Errorf("port %d of an InfiniBand fabric has no GID (%s): is a subnet manager running?", p.Number, p.has())
}

func (g GID) fits(peer netip.Addr) bool {
	a := g.GID.Unmap()
	return g.Type == TypeRoCEv2 && a.Is4() == peer.Is4() && !a.IsMulticast() && !a.IsUnspecified() && (!a.IsLoopback() || peer.IsLoopback())
}

func reason(g *GID, peer netip.Addr) string {
	switch local, want := linkLocal(g.GID), peer.IsLinkLocalUnicast(); {
	case local && !want:
		return fmt.Sprintf("RoCE v2, %s, but link-local: the port has no routable one, so only peers on the same link can be reached", family(peer))
	case local:
		return fmt.Sprintf("RoCE v2, %s, link-local as the peer", family(peer))
	}
	return fmt.Sprintf("RoCE v2, %s, routable", family(peer))
}

func linkLocal(a netip.Addr) bool { return a.Unmap().IsLinkLocalUnicast() }

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// common counts the leading bits that two addresses of one family share.
func common(a, b netip.Addr) int {
	for bits := a.BitLen(); bits > 0; bits-- {
		if p, err := a.Prefix(bits); err == nil && p.Contains(b.WithZone("")) {
			return bits
		}
	}
	return 0
}

// has lists a port's GIDs for an error message.
func (p Port) has() string {
	if len(p.GIDs) == 0 {
		return "it has none"
	}
	var out []string
	for _, g := range p.GIDs[:min(len(p.GIDs), 8)] {
		out = append(out, fmt.Sprintf("%d: %s %s", g.Index, g.Type, g.GID.Unmap()))
	}
	if more := len(p.GIDs) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return "it has " + strings.Join(out, ", ")
}
