package admintest

import "github.com/kvpipe/kvpipe/daemon/admin"

// nics returns two rails, one of them with RDMA, a NIC that is down, and what else a node has.
func nics() admin.NICs {
	return admin.NICs{
		State: "partial", Reason: "RDMA devices (sysfs): permission denied", Streams: 2, Missing: []string{"mlx5_9"},
		NICs: []admin.NIC{
			{Name: "lo", Index: 1, Kind: "loopback", Up: true, MTU: 65536, NUMA: -1, Addresses: []string{"127.0.0.1/8", "::1/128"}, Refused: "loopback"},
			{
				Name: "ens1f0np0", Index: 2, Kind: "ethernet", Up: true, Mbps: 400000, MTU: 9000, MAC: "b8:3f:d2:11:22:33", PCI: "0000:17:00.0", NUMA: 0,
				Addresses: []string{"10.1.0.1/24", "fd00:1::1/64"}, RDMA: "mlx5_0/1", Used: true, Links: 1,
			},
			{
				Name: "ens2f0np0", Index: 3, Kind: "ethernet", Up: true, Mbps: 400000, MTU: 9000, MAC: "b8:3f:d2:44:55:66", PCI: "0000:b1:00.0", NUMA: 1,
				Addresses: []string{"10.2.0.1/24"}, Used: true, Links: 1,
			},
			{Name: "ens3", Index: 4, Kind: "ethernet", MTU: 1500, MAC: "b8:3f:d2:77:88:99", PCI: "0000:c1:00.0", NUMA: 1, Addresses: []string{}, Refused: "down"},
		},
		RDMA: []admin.RDMADevice{{
			Name: "mlx5_0", NodeGUID: "b83f:d203:0011:2233", PCI: "0000:17:00.0", NUMA: 0, Firmware: "28.39.1002",
			Ports: []admin.RDMAPort{{
				Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", Mbps: 400000, NIC: "ens1f0np0",
				GIDs: []admin.GID{{Index: 1, GID: "fe80::ba3f:d2ff:fe11:2233", Type: "RoCE v2", NIC: "ens1f0np0"}, {Index: 3, GID: "10.1.0.1", Type: "RoCE v2", NIC: "ens1f0np0"}},
				Choices: []admin.GIDChoice{
					{Family: "IPv4", Index: 3, Reason: "RoCE v2, IPv4, routable"},
					{Family: "IPv6", Index: 1, Reason: "RoCE v2, IPv6, but link-local: the port has no routable one, so only peers on the same link can be reached"},
				},
			}},
		}},
	}
}
