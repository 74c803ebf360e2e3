package daemon

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/peer"
	"github.com/kvpipe/kvpipe/discovery/nic"
)

// A daemon says what it knows of NICs; a name in nic_allow that is not there is said too, and keeps nothing from running.
func TestNICsThatAreNotThere(t *testing.T) {
	n := start(t, "a", t.TempDir(), func(c *config.Config) {
		c.NICAllow, c.NICDeny = []string{"nosuch0", "lo"}, []string{"nosuch1", "docker*"}
	})
	s, got := get[admin.Status](n, "status"), get[admin.NICs](n, "nics")
	if got.State != "complete" || len(got.NICs) == 0 || s.NICs != 0 {
		t.Fatalf("%d NICs used, %+v", s.NICs, got)
	}
	for _, x := range got.NICs {
		if x.Used || x.Refused == "" {
			t.Errorf("%s is used, and nic_allow names others", x.Name)
		}
	}
	if diff := cmp.Diff([]string{"nosuch0"}, got.Missing); diff != "" {
		t.Error(diff)
	}
	if want := `nic_allow names "nosuch0", which is not there`; !strings.Contains(strings.Join(s.Warnings, "\n"), want) {
		t.Errorf("status warns of %q, not that %s", s.Warnings, want)
	}
	eventually(t, "says that it is ready", func() bool { return strings.Contains(n.log.String(), "msg=ready") })
	for _, want := range []string{`msg="nic_allow names what is not there; the others are used" name=nosuch0`, `msg="nic_deny names what is not there" name=nosuch1`} {
		if strings.Count(n.log.String(), want) != 1 {
			t.Errorf("the log lacks %s", want)
		}
	}
	next := n.cfg
	next.NICAllow = nil
	n.Reload(loaded(next))
	if missing := get[admin.NICs](n, "nics").Missing; len(missing) > 0 {
		t.Errorf("after a reload without it: %q are missing", missing)
	}
}

// TestNICsThatAreKnownAgainAreNoWarning: that some are not is one.
func TestNICsThatAreKnownAgainAreNoWarning(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	known, unknown := &nic.Inventory{State: nic.Complete}, &nic.Inventory{State: nic.Unknown, Reason: "no netlink"}
	n.nics.follow(known, unknown)
	n.nics.follow(unknown, known)
	for _, want := range []string{`level=WARN msg="NICs: what is known has changed" state=unknown`, `level=INFO msg="NICs: what is known has changed" state=complete`} {
		if !strings.Contains(n.log.String(), want) {
			t.Errorf("the log lacks %s", want)
		}
	}
}

// RDMA devices are shown with the GIDs that would be chosen, or why none is.
func TestRDMADevicesAreShown(t *testing.T) {
	sys := t.TempDir()
	for path, text := range map[string]string{
		"node_guid": "b83f:d203:0011:2233", "fw_ver": "28.39.1002", "ports/1/state": "4: ACTIVE", "ports/1/rate": "400 Gb/sec (4X NDR)",
		"ports/1/link_layer": "Ethernet", "ports/1/gids/3": "0000:0000:0000:0000:0000:ffff:0a01:0001", "ports/1/gid_attrs/types/3": "RoCE v2",
		"ports/1/gid_attrs/ndevs/3": "ens1",
	} {
		file := filepath.Join(sys, "class/infiniband/mlx5_0", path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	function := filepath.Join(sys, "devices/pci0000:16/0000:17:00.0")
	if err := os.MkdirAll(function, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(function, "numa_node"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(function, filepath.Join(sys, "class/infiniband/mlx5_0/device")); err != nil {
		t.Fatal(err)
	}
	n := startOn(t, "a", t.TempDir(), sys, nil)
	all := get[admin.Topology](n, "topology").Devices
	if len(all) != 1 || all[0].Name != "mlx5_0" || all[0].PCI != "0000:17:00.0" {
		t.Errorf("the topology has %+v, not mlx5_0", all)
	}
	want := func(choices ...admin.GIDChoice) {
		t.Helper()
		if diff := cmp.Diff([]admin.RDMADevice{{
			Name: "mlx5_0", NodeGUID: "b83f:d203:0011:2233", PCI: "0000:17:00.0", NUMA: 1, Firmware: "28.39.1002",
			Ports: []admin.RDMAPort{{
				Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", Mbps: 400000, NIC: "ens1",
				GIDs: []admin.GID{{Index: 3, GID: "10.1.0.1", Type: "RoCE v2", NIC: "ens1"}}, Choices: choices,
			}},
		}}, get[admin.NICs](n, "nics").RDMA); diff != "" {
			t.Error(diff)
		}
	}
	want(admin.GIDChoice{Family: "IPv4", Index: 3, Reason: "RoCE v2, IPv4, routable"}, admin.GIDChoice{
		Family: "IPv6", Index: -1, Reason: `port 1 has no RoCE v2 GID of IPv6 (it has 3: RoCE v2 10.1.0.1): give its link "ens1" an address of that family`,
	})
	next := n.cfg
	next.GIDIndex = 7
	n.Reload(loaded(next))
	const none = "gid_index = 7: port 1 has no such GID (it has 3: RoCE v2 10.1.0.1); correct it, or leave it at -1 to let the daemon choose"
	want(admin.GIDChoice{Family: "IPv4", Index: -1, Reason: none}, admin.GIDChoice{Family: "IPv6", Index: -1, Reason: none})
	if want := `msg="gid_index is that of no GID of this port" port=mlx5_0/1 gid_index=7`; !strings.Contains(n.log.String(), want) {
		t.Errorf("the log lacks %s", want)
	}
	if all, want := get[admin.Status](n, "status").Warnings, "gid_index = 7: port mlx5_0/1 has no such GID"; !slices.Contains(all, want) {
		t.Errorf("status warns of %q", all)
	}
}

// Of two nodes that are alike, first each NIC is paired with the one at its own place, whatever else either has.
func TestCouples(t *testing.T) {
	link := func(name string, addresses ...string) nic.Link {
		l := nic.Link{Name: name, Kind: "ethernet", Up: true}
		for _, a := range addresses {
			l.Addresses = append(l.Addresses, netip.MustParsePrefix(a))
		}
		return l
	}
	links := []nic.Link{link("mgmt", "fd00::1/64"), link("down"), link("rail0", "10.0.0.1/31", "fd00:1::1/64"), link("rail1", "10.0.1.1/31", "fd00:2::1/64")}
	to := func(nic, ip string) peer.Address { return peer.Address{NIC: nic, IP: netip.MustParseAddr(ip)} }
	for _, c := range []struct {
		name string
		to   []peer.Address
		want []string
	}{
		{"nobody", nil, nil},
		{"IPv4", []peer.Address{to("rail0", "10.0.0.0"), to("rail1", "10.0.1.0")}, []string{"rail0 rail0", "rail1 rail1", "rail0 rail1", "rail1 rail0"}},
		{
			"IPv6", []peer.Address{to("mgmt", "fd00::"), to("rail0", "fd00:1::"), to("rail1", "fd00:2::")},
			[]string{"mgmt mgmt", "rail0 rail0", "rail1 rail1", "mgmt rail0", "rail0 rail1", "rail1 mgmt", "mgmt rail1", "rail0 mgmt", "rail1 rail0"},
		},
		{
			"both", []peer.Address{to("rail0", "10.0.0.0"), to("rail0", "fd00:1::"), to("rail1", "10.0.1.0")},
			[]string{"rail0 rail0", "rail1 rail1", "rail0 rail1", "rail1 rail0", "mgmt rail0", "rail0 rail0", "rail1 rail0"},
		},
	} {
		var got []string
		for _, p := range couples(new(nic.Rules), links, c.to) {
			got = append(got, p.link.Name+" "+p.to.NIC)
			if p.from.Is4() != p.to.IP.Is4() {
				t.Errorf("%s: from %s to %s", c.name, p.from, p.to.IP)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestHeaviest(t *testing.T) {
	for _, c := range []struct {
		bytes map[int]uint64
		want  int
	}{{nil, -1}, {map[int]uint64{1: 5}, 1}, {map[int]uint64{0: 4, 1: 5, 2: 5}, 1}} {
		if got := heaviest(c.bytes); got != c.want {
			t.Errorf("%v: node %d, want %d", c.bytes, got, c.want)
		}
	}
}

// Others are told of an address only if who connects there comes to this daemon.
func TestReachable(t *testing.T) {
	for _, c := range []struct {
		listen, advertise, address string
		want                       bool
	}{
		{"[::]:7650", "node-a:7650", "10.0.0.1", true},
		{"[::]:7650", "node-a:7650", "fd00::1", true},
		{"0.0.0.0:7650", "node-a:7650", "10.0.0.1", true},
		{"0.0.0.0:7650", "node-a:7650", "fd00::1", false},
		{"10.0.0.1:7650", "10.0.0.1:7650", "10.0.0.1", true},
		{"10.0.0.1:7650", "10.0.0.1:7650", "10.0.1.1", false},
		{"[::]:7650", "gateway:31000", "10.0.0.1", false}, // a port is translated
		{"", "", "10.0.0.1", false},                       // listen = "off"
	} {
		if got := reachable(c.listen, c.advertise)(netip.MustParseAddr(c.address)); got != c.want {
			t.Errorf("listen %q, advertise %q: %s reachable %v, want %v", c.listen, c.advertise, c.address, got, c.want)
		}
	}
}
