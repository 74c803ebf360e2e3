package nic

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvpipe/kvpipe/discovery/internal/fixture"
)

func mixed(t *testing.T) Source {
	t.Helper()
	return Source{Sys: filepath.Join(fixture.Open(t, "testdata/mixed.txtar"), "sys")}
}

func same(t *testing.T, got, want any) {
	t.Helper()
	equal := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, got, equal); diff != "" {
		t.Error(diff)
	}
}

func TestDevices(t *testing.T) {
	got, err := mixed(t).devices()
	if err != nil {
		t.Fatal(err)
	}
	roce := []GID{
		{Index: 0, GID: netip.MustParseAddr("fe80::ba3f:d2ff:fe11:2233"), Type: TypeRoCEv1, Netdev: "ens1f0np0"},
		{Index: 1, GID: netip.MustParseAddr("fe80::ba3f:d2ff:fe11:2233"), Type: TypeRoCEv2, Netdev: "ens1f0np0"},
		{Index: 3, GID: netip.MustParseAddr("::ffff:10.1.0.1"), Type: TypeRoCEv2, Netdev: "ens1f0np0"},
	}
	ib := []GID{{Index: 0, GID: netip.MustParseAddr("fe80::b83f:d203:44:5567"), Type: TypeIB}}
	same(t, got, []Device{
		{
			Name: "mlx5_0", NodeGUID: "b83f:d203:0011:2233", PCI: "0000:17:00.0", NUMA: 0, Firmware: "28.39.1002",
			Ports: []Port{{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", SpeedMbps: 400000, Netdev: "ens1f0np0", GIDs: roce}},
		},
		{
			Name: "mlx5_1", NodeGUID: "b83f:d203:0044:5566", PCI: "0000:b1:00.0", NUMA: 1, Firmware: "28.39.1002",
			Ports: []Port{
				{Number: 1, State: "ACTIVE", LinkLayer: "InfiniBand", SpeedMbps: 400000, Netdev: "ib0", GIDs: ib},
				{Number: 2, State: "DOWN", LinkLayer: "InfiniBand", SpeedMbps: 10000},
			},
		},
		{
			Name: "rxe0", NodeGUID: "0050:56ff:fe00:0001", NUMA: -1,
			Ports: []Port{{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", SpeedMbps: 2500, Netdev: "eth9"}},
		},
	})
}

// Links get speed and place from sysfs, virtual ones from what they lie on; RDMA ports and links know each other.
func TestPlaces(t *testing.T) {
	s := mixed(t)
	v := &Inventory{}
	for i, name := range []string{"eth9", "tap3", "ens1f0np0", "ens2f0np0", "ib0", "bond0", "br0", "vlan7", "eth0"} {
		index := []int{2, 3, 4, 5, 6, 7, 8, 9, 2}[i]
		l := Link{Name: name, Index: index, NUMA: -1}
		s.describe(&l)
		v.Links = append(v.Links, l)
	}
	s.inherit(v.Links)
	var err error
	if v.Devices, err = s.devices(); err != nil {
		t.Fatal(err)
	}
	s.join(v)
	same(t, v.Links, []Link{
		{Name: "eth9", Index: 2, PCI: "0000:00:03.0", NUMA: -1, RDMA: &PortRef{"rxe0", 1}},
		{Name: "tap3", Index: 3, NUMA: -1},
		{Name: "ens1f0np0", Index: 4, PCI: "0000:17:00.0", NUMA: 0, SpeedMbps: 400000, RDMA: &PortRef{"mlx5_0", 1}},
		{Name: "ens2f0np0", Index: 5, PCI: "0000:81:00.0", NUMA: 1},
		{Name: "ib0", Index: 6, PCI: "0000:b1:00.0", NUMA: 1, SpeedMbps: 400000, RDMA: &PortRef{"mlx5_1", 1}},
		{Name: "bond0", Index: 7, NUMA: -1, SpeedMbps: 800000},
		{Name: "br0", Index: 8, PCI: "0000:00:03.0", NUMA: -1},
		{Name: "vlan7", Index: 9, NUMA: -1},
		{Name: "eth0", Index: 2, NUMA: -1},
	})
}

// A sysfs of another network namespace has links of the same names, which are others.
func TestForeignSysfs(t *testing.T) {
	l := Link{Name: "ens1f0np0", Index: 104, NUMA: -1}
	mixed(t).describe(&l)
	if l.PCI != "" || l.SpeedMbps != 0 || l.NUMA != -1 {
		t.Errorf("link 104 was described by what sysfs says of link 4: %+v", l)
	}
}

func TestNoRDMA(t *testing.T) {
	found, err := Source{Sys: t.TempDir()}.devices()
	if err != nil || len(found) > 0 {
		t.Errorf("without the ib core there are no devices and no error, not %v, %v", found, err)
	}
}

// Two ports of one function, of which each has a link: some drivers number those by dev_id alone, in hexadecimal.
func TestPortsOfOneFunction(t *testing.T) {
	root := fixture.Text(t, `
-- dev/device/net/ib0/dev_id --
0x0
-- dev/device/net/ib1/dev_id --
0x1
-- dev/device/net/ib2/dev_port --
2
`)
	for port, want := range map[int]string{1: "ib0", 2: "ib1", 3: "ib2", 4: ""} {
		if got := netdev(filepath.Join(root, "dev"), port, nil); got != want {
			t.Errorf("port %d belongs to %q, want %q", port, got, want)
		}
	}
}

// Names of links may be any bytes but space, slash and colon, and mean themselves: a bond lies on its own links, whatever else is called.
func TestNamesAreNoPatterns(t *testing.T) {
	root := fixture.Text(t, `
-- class/net/b[0]*/lower_e0/x --
-- class/net/b0/lower_e1/x --
`)
	links := []Link{{Name: "e0", PCI: "0000:01:00.0", NUMA: 0}, {Name: "e1", PCI: "0000:81:00.0", NUMA: 1}, {Name: "b[0]*"}, {Name: "b0"}}
	(Source{Sys: root}).inherit(links)
	if l := links[2]; l.PCI != "0000:01:00.0" || l.NUMA != 0 {
		t.Errorf("%q lies on e0, not on %+v", l.Name, l)
	}
	if l := links[3]; l.PCI != "0000:81:00.0" || l.NUMA != 1 {
		t.Errorf("%q lies on e1, not on %+v", l.Name, l)
	}
}

func TestRates(t *testing.T) {
	for s, want := range map[string]int{"100 Gb/sec (4X EDR)": 100000, "2.5 Gb/sec (1X SDR)": 2500, "56 Gb/sec (4X FDR)": 56000, "12.5 Gb/sec": 12500} {
		if got, err := parseRate(s); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "Gb/sec", "-1 Gb/sec", "NaN Gb/sec", "1e300 Gb/sec", "100 Mb/sec", "100"} {
		if got, err := parseRate(s); err == nil || got != 0 {
			t.Errorf("%q: %d and no error", s, got)
		}
	}
}

func FuzzRate(f *testing.F) {
	f.Add("100 Gb/sec (4X EDR)")
	f.Add("2.5 Gb/sec")
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := parseRate(s); got < 0 || got > 1e9 || err != nil && got != 0 {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	})
}
