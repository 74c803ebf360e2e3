package peer

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
)

// Rails knows over which of this node's NICs data links may go. Any goroutine may call its methods.
type Rails interface {
	// Own returns the addresses at which others may open data links to this node, besides the one that they dialed.
	// None: it can only be reached there.
	Own() []Address
	// Paths returns the paths from this node's NICs to a peer's addresses that the routes allow, best first.
	Paths(to []Address) []Path
}

// Address is one of a node's NICs, as others reach it.
type Address struct {
	IP   netip.Addr
	Mbps int    // 0: unknown
	NIC  string // the NIC's name on its node
}

// Path is one way for a data link.
type Path struct {
	From, To Address
	Near     bool // From is on the NUMA node of the memory that moves
}

// ends are the two addresses of a link. The zero value means wherever the channel goes.
type ends struct{ local, remote netip.Addr }

func (p *Path) ends() ends { return ends{p.From.IP, p.To.IP} }

// Bounds on what a peer may say.
const (
	maxAddresses = 64
	maxMbps      = 1 << 30
)

// spread lays n links over paths, in proportion to the speed of the NICs at both ends. Each link takes the path on
// which the busier of the two NICs is least busy with it, then the path with the less busy other NIC, then one from the
// memory's NUMA node, then the first in the order of paths. A NIC of unknown speed counts as the slowest known one. It
// returns nil if there is no path, or only the channel's own, whose ends are home: the links then go where the channel
// goes.
func spread(paths []Path, n int, home ends) []Path {
	mine, theirs := map[string]int{}, map[string]int{}
	for _, p := range paths {
		mine[p.From.NIC], theirs[p.To.NIC] = p.From.Mbps, p.To.Mbps
	}
	if len(paths) == 0 || len(mine) < 2 && len(theirs) < 2 && (paths[0].From.IP == home.local || paths[0].To.IP == home.remote) {
		return nil
	}
	known(mine)
	known(theirs)
	out := make([]Path, 0, n)
	used, usedThere := map[string]int{}, map[string]int{}
	load := func(p Path) (busier, other float64) {
		here, there := float64(used[p.From.NIC]+1)/float64(mine[p.From.NIC]), float64(usedThere[p.To.NIC]+1)/float64(theirs[p.To.NIC])
		return max(here, there), min(here, there)
	}
	for range n {
		best := slices.MinFunc(paths, func(a, b Path) int { // the first of equals
			busyA, otherA := load(a)
			busyB, otherB := load(b)
			return cmp.Or(cmp.Compare(busyA, busyB), cmp.Compare(otherA, otherB), cmp.Compare(far(a), far(b)))
		})
		used[best.From.NIC]++
		usedThere[best.To.NIC]++
		out = append(out, best)
	}
	return out
}

func far(p Path) int {
	if p.Near {
		return 0
	}
	return 1
}

// known replaces unknown speeds.
func known(speeds map[string]int) {
	least := 0
	for _, v := range speeds {
		if v > 0 && (least == 0 || v < least) {
			least = v
		}
	}
	for nic, v := range speeds {
		if v <= 0 {
			speeds[nic] = max(least, 1)
		}
	}
}

// encodeAddresses encodes addresses for Hello and Heartbeat, within the bounds. NICs may have any name and speed.
func encodeAddresses(all []Address) *peerpb.Addresses {
	out := new(peerpb.Addresses)
	for _, a := range all[:min(len(all), maxAddresses)] {
		out.List = append(out.List, &peerpb.Address{Ip: a.IP.AsSlice(), Mbps: uint32(min(max(a.Mbps, 0), maxMbps)), Nic: strings.ToValidUTF8(a.NIC, "?")})
	}
	return out
}

// decodeAddresses judges the addresses that a peer sends. One at which no other node can be reached is an error: no
// honest peer lists it.
func decodeAddresses(in *peerpb.Addresses) ([]Address, error) {
	if len(in.GetList()) > maxAddresses {
		return nil, malformed("%d addresses, limit %d", len(in.List), maxAddresses)
	}
	var out []Address
	for _, a := range in.GetList() {
		ip, ok := netip.AddrFromSlice(a.Ip)
		if ip = ip.Unmap(); !ok || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || len(a.Nic) > 64 || a.Mbps > maxMbps {
			return nil, malformed("address %v of NIC %.70q, %d Mb/s", ip, a.Nic, a.Mbps)
		}
		out = append(out, Address{IP: ip, Mbps: int(a.Mbps), NIC: strings.Map(printable, a.Nic)})
	}
	return out, nil
}

// printable replaces, in names that are shown on a terminal, what could command it.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return '?'
}
