package nic

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

// Two NICs on networks of their own, and a gateway on the first.
func TestRoutes(t *testing.T) {
	if _, in := inside(t); !in {
		return
	}
	w := watched{T: t}
	for i, name := range []string{"kv0", "kv1"} {
		w.do(netlink.LinkAdd(veth(name)))
		w.do(netlink.LinkSetUp(w.named(name)))
		w.do(netlink.LinkSetUp(w.named(name + "far")))
		for _, a := range [][]string{{"10.1.0.1/24", "fd00:1::1/64"}, {"10.2.0.1/24", "fd00:2::1/64"}}[i] {
			addr := w.addr(a)
			addr.Flags = addrNoDAD
			w.do(netlink.AddrAdd(w.named(name), addr))
		}
	}
	w.do(netlink.RouteAdd(&netlink.Route{LinkIndex: w.named("kv0").Attrs().Index, Gw: net.ParseIP("10.1.0.254")}))
	w.do(netlink.RouteAdd(&netlink.Route{LinkIndex: w.named("kv1").Attrs().Index, Dst: &net.IPNet{IP: net.IPv4(198, 51, 100, 0), Mask: net.CIDRMask(24, 32)},
		Via: &netlink.Via{AddrFamily: netlink.FAMILY_V6, Addr: net.ParseIP("fe80::1")}}))
	var routes Routes // for all, those that end in an error, too
	defer routes.Close()
	for _, c := range []struct {
		local, remote string
		link          string // "": no route
		direct        bool
	}{
		{"10.1.0.1", "10.1.0.2", "kv0", true},
		{"10.2.0.1", "10.2.0.2", "kv1", true},
		{"10.1.0.1", "10.2.0.2", "kv1", true},      // the routes decide, not the address
		{"10.1.0.1", "192.0.2.1", "kv0", false},    // by the gateway
		{"10.2.0.1", "198.51.100.1", "kv1", false}, // by one that has an address of the other family (RFC 5549)
		{"fd00:2::1", "fd00:2::2", "kv1", true},    // IPv6
		{"fd00:2::1", "2001:db8::1", "", false},    // no gateway there
		{"10.9.0.1", "10.1.0.2", "", false},        // not ours
		{"10.1.0.1", "10.1.0.1", "lo", true},       // to itself
	} {
		got, err := routes.Find(netip.MustParseAddr(c.local), netip.MustParseAddr(c.remote))
		if c.link == "" {
			if err == nil {
				t.Errorf("%s to %s goes by link %d, and should not", c.local, c.remote, got.Link)
			}
			continue
		}
		if want := (Route{w.named(c.link).Attrs().Index, c.direct}); err != nil || got != want {
			t.Errorf("%s to %s: %+v, %v; want %+v", c.local, c.remote, got, err, want)
		}
	}
}

// BenchmarkRoutes is what a pair of addresses costs who opens a channel.
func BenchmarkRoutes(b *testing.B) {
	var routes Routes
	defer routes.Close()
	lo := netip.MustParseAddr("127.0.0.1")
	for b.Loop() {
		if _, err := routes.Find(lo, lo); err != nil {
			b.Fatal(err)
		}
	}
}

const addrNoDAD = 0x02 // IFA_F_NODAD: no wait until it is known to be unique
