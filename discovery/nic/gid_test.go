package nic

import (
	"net/netip"
	"testing"
)

func TestChooseGID(t *testing.T) {
	g := func(index int, typ GIDType, addr string) GID {
		return GID{Index: index, Type: typ, GID: netip.MustParseAddr(addr)}
	}
	roce := func(gids ...GID) Port { return Port{Number: 1, LinkLayer: "Ethernet", Netdev: "eth1", GIDs: gids} }
	usual := roce(
		g(0, TypeRoCEv1, "fe80::1"), g(1, TypeRoCEv2, "fe80::1"), g(2, TypeRoCEv1, "::ffff:10.1.0.1"), g(3, TypeRoCEv2, "::ffff:10.1.0.1"),
		g(4, TypeRoCEv2, "fd00:1::1"),
	)
	tests := []struct {
		name, peer string
		port       Port
		fixed      int
		want       int // index; -1: an error
		text       string
	}{
		{"IPv4 peer", "10.2.0.7", usual, AnyIndex, 3, "RoCE v2, IPv4, routable"},
		{"IPv4 peer, as sockets write it", "::ffff:10.2.0.7", usual, AnyIndex, 3, "RoCE v2, IPv4, routable"},
		{"IPv6 peer: not the link-local one, though it comes first", "fd00:2::7", usual, AnyIndex, 4, "RoCE v2, IPv6, routable"},
		{"link-local peer", "fe80::7%eth1", usual, AnyIndex, 1, "RoCE v2, IPv6, link-local as the peer"},
		{
			"nothing but link-local", "fd00:2::7", roce(g(0, TypeRoCEv1, "fd00:1::1"), g(1, TypeRoCEv2, "fe80::1")), AnyIndex, 1,
			"RoCE v2, IPv6, but link-local: the port has no routable one, so only peers on the same link can be reached",
		},
		{"the one of the peer's network", "10.2.0.7", roce(g(2, TypeRoCEv2, "::ffff:10.1.0.1"), g(5, TypeRoCEv2, "::ffff:10.2.0.1")), AnyIndex, 5, "RoCE v2, IPv4, routable"},
		{"indices moved with the addresses", "10.2.0.7", roce(g(11, TypeRoCEv2, "::ffff:10.1.0.1")), AnyIndex, 11, "RoCE v2, IPv4, routable"},
		{
			"other family alone", "10.2.0.7", roce(g(1, TypeRoCEv2, "fd00:1::1")), AnyIndex, -1,
			`port 1 has no RoCE v2 GID of IPv4 (it has 1: RoCE v2 fd00:1::1): give its link "eth1" an address of that family`,
		},
		{
			"RoCE v1 alone", "10.2.0.7", roce(g(0, TypeRoCEv1, "::ffff:10.1.0.1")), AnyIndex, -1,
			`port 1 has no RoCE v2 GID of IPv4 (it has 0: RoCE v1 10.1.0.1): give its link "eth1" an address of that family`,
		},
		{"no GIDs", "10.2.0.7", roce(), AnyIndex, -1, `port 1 has no RoCE v2 GID of IPv4 (it has none): give its link "eth1" an address of that family`},
		{"told which", "10.2.0.7", usual, 2, 2, "gid_index = 2 says so"},
		{
			"told wrongly", "10.2.0.7", roce(g(1, TypeRoCEv2, "fe80::1")), 7, -1,
			"gid_index = 7: port 1 has no such GID (it has 1: RoCE v2 fe80::1); correct it, or leave it at -1 to let the daemon choose",
		},
		{"InfiniBand: families do not matter", "10.2.0.7", Port{Number: 1, LinkLayer: "InfiniBand", GIDs: []GID{g(0, TypeIB, "fe80::9")}}, AnyIndex, 0, "InfiniBand: the port's first GID"},
		{
			"InfiniBand without subnet manager", "10.2.0.7", Port{Number: 1, LinkLayer: "InfiniBand"}, AnyIndex, -1,
			"port 1 of an InfiniBand fabric has no GID (it has none): is a subnet manager running?",
		},
		{"loopback for a loopback peer", "127.0.0.1", roce(g(1, TypeRoCEv2, "::ffff:127.0.0.1")), AnyIndex, 1, "RoCE v2, IPv4, routable"},
		{
			"loopback for nobody else", "10.2.0.7", roce(g(1, TypeRoCEv2, "::ffff:127.0.0.1")), AnyIndex, -1,
			`port 1 has no RoCE v2 GID of IPv4 (it has 1: RoCE v2 127.0.0.1): give its link "eth1" an address of that family`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ChooseGID(tt.port, netip.MustParseAddr(tt.peer), tt.fixed)
			index, text := got.GID.Index, got.Reason
			if err != nil {
				index, text = -1, err.Error()
			}
			if index != tt.want || text != tt.text {
				t.Errorf("got  %d: %s\nwant %d: %s", index, text, tt.want, tt.text)
			}
		})
	}
}
