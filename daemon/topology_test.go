package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/metrics"
	"github.com/kvpipe/kvpipe/daemon/place/placetest"
	"github.com/kvpipe/kvpipe/discovery/gpu"
	"github.com/kvpipe/kvpipe/discovery/nic"
	"github.com/kvpipe/kvpipe/discovery/topology"
)

// twoSockets is the /sys of a machine with a CPU at each of two NUMA nodes, a GPU and a NIC behind one switch at the second, and a
// NIC at the first.
func twoSockets(t *testing.T, cpus [2]string) (root string) {
	t.Helper()
	root = t.TempDir()
	put := func(file, text string) {
		file = filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range cpus {
		put(fmt.Sprintf("devices/system/node/node%d/cpulist", i), c)
		put(fmt.Sprintf("devices/system/node/node%d/distance", i), []string{"10 21", "21 10"}[i])
	}
	if err := os.MkdirAll(filepath.Join(root, "bus/pci/devices"), 0o755); err != nil {
		t.Fatal(err)
	}
	for place, node := range map[string]string{
		"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.0": "1",
		"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0/0000:84:00.0": "1",
		"pci0000:00/0000:00:01.0/0000:01:00.0":                           "0",
	} {
		put("devices/"+place+"/numa_node", node)
		if err := os.Symlink("../../../devices/"+place, filepath.Join(root, "bus/pci/devices", filepath.Base(place))); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestTopologyFollows: it is computed anew when GPUs or NICs change, and then only.
func TestTopologyFollows(t *testing.T) {
	h := newHardware(twoSockets(t, [2]string{"0", "1"}))
	eno1 := nic.Link{Name: "eno1", Kind: "ethernet", PCI: "0000:01:00.0", NUMA: -1}
	h.setGPUs(gpu.Inventory{State: gpu.OK, Devices: []gpu.Device{{Name: "NVIDIA L40S", PCI: "0000:83:00.0", NUMA: -1, MemoryNUMA: -1}}})
	h.setNICs(&nic.Inventory{
		Links:   []nic.Link{eno1},
		Devices: []nic.Device{{Name: "mlx5_0", PCI: "0000:84:00.0", NUMA: -1, Ports: []nic.Port{{Number: 1, Netdev: "ens1f0"}}}},
	})
	got := h.now.Load()
	want := [][]topology.Word{{"X", "PIX", "SYS"}, {"PIX", "X", "SYS"}, {"SYS", "SYS", "X"}}
	if near := nearest(got); !reflect.DeepEqual(got.Links, want) || !reflect.DeepEqual(near, []admin.Nearest{{GPU: "GPU0", NICs: []string{"mlx5_0"}, Way: "PIX"}}) {
		t.Errorf("ways %v, nearest %+v", got.Links, near)
	}
	var page metrics.Snapshot
	view{&Daemon{hardware: h}}.scrapeTopology(&page)
	if want := []metrics.NearestNIC{{GPU: "GPU0", PCI: "0000:83:00.0", NIC: "mlx5_0", Way: "PIX", Rank: 2}}; !reflect.DeepEqual(page.NearestNICs, want) {
		t.Errorf("metrics show %+v, want %+v", page.NearestNICs, want)
	}
	h.setNICs(&nic.Inventory{Links: []nic.Link{eno1}})
	one := h.now.Load()
	if near := nearest(one); len(one.Devices) != 2 || near[0].Way != "SYS" {
		t.Errorf("after a NIC went away: %+v", near)
	}
	eno1.Up, eno1.Addresses = true, []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}
	h.setNICs(&nic.Inventory{Links: []nic.Link{eno1}})
	if h.now.Load() != one {
		t.Error("a new address is no reason to compute the topology anew")
	}
	h.setGPUs(gpu.Inventory{State: gpu.NoDriver})
	if near := nearest(h.now.Load()); len(near) != 0 {
		t.Errorf("after the GPU went away: %+v", near)
	}
}

// TestWhatHasAPlace: what of the inventories is in the topology.
func TestWhatHasAPlace(t *testing.T) {
	gpus := placedGPUs(gpu.Inventory{Devices: []gpu.Device{
		{
			Index: 2, Name: "a", PCI: "0000:01:00.0", NUMA: 1, MemoryNUMA: 9, Fabric: gpu.Fabric{State: "completed", Cluster: "c", Clique: 3},
			Links: []gpu.Link{{Active: true, Remote: gpu.RemoteSwitch}, {Remote: gpu.RemoteSwitch}, {Active: true, Remote: gpu.RemoteGPU, PCI: "0000:02:00.0"}, {Active: true, Remote: gpu.RemoteUnknown}},
		},
		{Index: 3, PCI: "0000:02:00.0", NUMA: -1, MemoryNUMA: -1, MIG: true, Instances: []gpu.Instance{{Profile: "1g.10gb"}}, Fabric: gpu.Fabric{State: "in_progress", Cluster: "c"}},
		{Index: 4, PCI: "0000:03:00.0", NUMA: -1, MemoryNUMA: -1, MIG: true},
	}})
	if want := []topology.GPU{
		{Index: 2, Name: "a", PCI: "0000:01:00.0", NUMA: 1, MemoryNode: 9, Fabric: "c/0x3", SwitchLinks: 1, Links: []topology.NVLink{{Peer: "0000:02:00.0", Count: 1}}},
		{Index: 3, PCI: "0000:02:00.0", NUMA: -1, MemoryNode: -1, MIG: []string{"MIG 1g.10gb"}},
		{Index: 4, PCI: "0000:03:00.0", NUMA: -1, MemoryNode: -1, MIG: []string{"MIG, no instance"}},
	}; !reflect.DeepEqual(gpus, want) {
		t.Errorf("GPUs %+v\nwant %+v", gpus, want)
	}
	nics := placedNICs(&nic.Inventory{
		Links: []nic.Link{
			{Name: "lo", Kind: "loopback", NUMA: -1},
			{Name: "ens1", Kind: "ethernet", PCI: "0000:04:00.0", NUMA: 0, RDMA: &nic.PortRef{Device: "mlx5_0", Port: 1}},
			{Name: "ens2", Kind: "ethernet", PCI: "0000:05:00.0", NUMA: 1},
			{Name: "bond0", Kind: "bond", PCI: "0000:05:00.0", NUMA: 1},
		},
		Devices: []nic.Device{{Name: "mlx5_0", PCI: "0000:04:00.0", NUMA: 0, Ports: []nic.Port{{Number: 1}, {Number: 2, Netdev: "ens1"}}}, {Name: "rxe0", NUMA: -1}},
	})
	if want := []topology.NIC{{Name: "mlx5_0", Netdev: "ens1", PCI: "0000:04:00.0"}, {Name: "ens2", Netdev: "ens2", PCI: "0000:05:00.0", NUMA: 1}}; !reflect.DeepEqual(nics, want) {
		t.Errorf("NICs %+v\nwant %+v", nics, want)
	}
}

// TestPlacement: on a machine with two nodes the daemon's copies run where the kernel says that the memory is, which can be seen, and
// when it stops no thread is left with CPUs that it was given.
func TestPlacement(t *testing.T) {
	m := placetest.New(t)
	n := startOn(t, "a", t.TempDir(), twoSockets(t, m.CPUs), nil)
	producer, consumer := n.join("prefill", 256), n.join("decode", 256)
	handOver(producer, consumer, "", "k", "", token())
	var p admin.Placement
	eventually(t, "a worker is seated at each of two nodes", func() bool { // one that had nothing to copy may not have run yet
		p = get[admin.Topology](n, "topology").Placement
		return len(p.Nodes) == 2 && p.Nodes[0].Threads+p.Nodes[1].Threads >= 2
	})
	if p.Nodes[0].CPUs != m.CPUs[0] || p.Nodes[1].CPUs != m.CPUs[1] || len(p.Regions) != 2 {
		t.Fatalf("placement %+v, want two nodes with a worker each, and two regions", p)
	}
	if all := placetest.Threads(t); all[m.CPUs[0]]+all[m.CPUs[1]] < 2 {
		t.Errorf("threads run on %v, want one at least on each of %v", all, m.CPUs)
	}
	if !p.Active {
		t.Skipf("the kernel does not say where memory is: %s", p.Reason)
	}
	into := p.Regions[slices.IndexFunc(p.Regions, func(r admin.PlacementRegion) bool { return r.Engine == "decode" })].Nodes
	if len(into) != 1 || into[0].Node > 1 {
		t.Skipf("memory lies on nodes %v: this machine has more than the two that the test knows", into)
	}
	eventually(t, "all bytes are counted at their node", func() bool { // a worker counts a slice after its report
		at := get[admin.Topology](n, "topology").Placement.Nodes[into[0].Node]
		return at.Slices > 0 && at.Bytes == 256*blockBytes
	})
	if regions := get[[]admin.Region](n, "regions"); len(regions) != 2 || len(regions[0].Nodes) == 0 {
		t.Errorf("regions %+v, want to see where they lie", regions)
	}
	if s := get[admin.Status](n, "status"); s.Placement != "on, 2 NUMA nodes" {
		t.Errorf("placement is %q", s.Placement)
	}
	if page, line := n.page(), fmt.Sprintf(`kvpipe_numa_bytes_total{node="%d"} %g`, into[0].Node, float64(256*blockBytes)); !strings.Contains(page, line) {
		t.Errorf("the metrics lack %s", line)
	}
	n.stop()
	if all := placetest.Threads(t); len(all) != 1 || all[m.All] == 0 {
		t.Errorf("threads are left on CPUs %v, want %s alone", all, m.All)
	}
}

// TestOneNode: there nothing is placed, and that is said.
func TestOneNode(t *testing.T) {
	n := startOn(t, "a", t.TempDir(), t.TempDir(), nil)
	if s := get[admin.Status](n, "status"); s.Placement != "off: one NUMA node" || n.places != nil {
		t.Errorf("placement is %q", s.Placement)
	}
	if e := get[admin.Explain](n, "explain"); !slices.Contains(e.Notes, "placement: off: one NUMA node") {
		t.Errorf("explain says %q", e.Notes)
	}
	if p := get[admin.Topology](n, "topology").Placement; p.Active || p.Reason != "one NUMA node" || len(p.Nodes) != 0 {
		t.Errorf("placement %+v", p)
	}
}

// TestListsAreLists, as the description of the interface says, also on a machine whose kernel tells nothing of itself.
func TestListsAreLists(t *testing.T) {
	n := startOn(t, "a", t.TempDir(), t.TempDir(), nil)
	for _, what := range []string{"status", "peers", "sessions", "regions", "offers", "transfers", "pipes", "gpus", "topology", "nics", "explain"} {
		if got := get[json.RawMessage](n, what); bytes.Contains(got, []byte("null")) {
			t.Errorf("%s: %s", what, got)
		}
	}
}

// TestPlacementKeepsToTheDaemonsCPUs: those of the thread that opens it, which is what cpus and the service manager chose.
func TestPlacementKeepsToTheDaemonsCPUs(t *testing.T) {
	m := placetest.New(t)
	d := &Daemon{hardware: newHardware(twoSockets(t, [2]string{m.CPUs[0], m.CPUs[1] + ",1023"})), log: slog.New(slog.DiscardHandler)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		seat := m.Places.Seat()
		defer seat.Leave()
		d.openPlaces()
		if s := d.places.Spots(); len(s) != 2 || s[0].CPUs != m.CPUs[0] || s[1].CPUs != m.CPUs[1] {
			t.Errorf("with all CPUs: %+v, want %v", s, m.CPUs)
		}
		seat.Take(0)
		d.openPlaces()
		if want := "the daemon's CPUs, " + m.CPUs[0] + ", leave no choice"; d.places != nil || d.unplaced != want {
			t.Errorf("with CPU %s: %+v because %q, want %q", m.CPUs[0], d.places.Spots(), d.unplaced, want)
		}
	}()
	<-done
}

// TestALinkUnderSoftwareRDMAStaysANIC: soft-RoCE has no place of its own, and takes none from the link that it was made of.
func TestALinkUnderSoftwareRDMAStaysANIC(t *testing.T) {
	link := func(name, pci, device string) nic.Link {
		return nic.Link{Name: name, PCI: pci, Kind: "ethernet", RDMA: &nic.PortRef{Device: device, Port: 1}}
	}
	device := func(name, pci, netdev string) nic.Device {
		return nic.Device{Name: name, PCI: pci, Ports: []nic.Port{{Number: 1, Netdev: netdev}}}
	}
	got := placedNICs(&nic.Inventory{
		Links:   []nic.Link{link("ens1", "0000:17:00.0", "mlx5_0"), link("eth0", "0000:03:00.0", "rxe0"), link("veth0", "", "rxe1")},
		Devices: []nic.Device{device("mlx5_0", "0000:17:00.0", "ens1"), device("rxe0", "", "eth0"), device("rxe1", "", "veth0")},
	})
	want := []topology.NIC{{Name: "mlx5_0", PCI: "0000:17:00.0", Netdev: "ens1"}, {Name: "eth0", PCI: "0000:03:00.0", Netdev: "eth0"}}
	if !slices.Equal(got, want) {
		t.Errorf("NICs of the topology are %+v, want %+v", got, want)
	}
}
