package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/discovery/internal/fixture"
)

// way is the word between two devices, by their ids.
func way(t *testing.T, top *Topology, a, b string) Word {
	t.Helper()
	find := func(id string) int {
		return slices.IndexFunc(top.Devices, func(d Device) bool { return d.ID == id })
	}
	i, j := find(a), find(b)
	if i < 0 || j < 0 {
		t.Fatalf("no %s or no %s", a, b)
	}
	if top.Links[i][j] != top.Links[j][i] {
		t.Errorf("%s to %s is %s, and back it is %s", a, b, top.Links[i][j], top.Links[j][i])
	}
	return top.Links[i][j]
}

// TestDeterministic: the same tree gives the same answer, and in whatever order devices are named, they are as far from each other.
func TestDeterministic(t *testing.T) {
	for _, name := range machines(t) {
		root, gpus, nics := machine(t, name)
		one := Read(root, gpus, nics)
		if again := Read(root, gpus, nics); !reflect.DeepEqual(one, again) {
			t.Errorf("%s: differs the second time", name)
		}
		slices.Reverse(gpus)
		other := Read(root, gpus, nics)
		for _, g := range gpus {
			for i := range nics {
				a, b := fmt.Sprintf("GPU%d", g.Index), one.Devices[len(gpus)+i].ID
				if x, y := way(t, one, a, b), way(t, other, a, b); x != y {
					t.Errorf("%s: %s to %s is %s, or %s", name, a, b, x, y)
				}
			}
		}
	}
}

// TestBestNICs: the NIC on the GPU's own switch, or all that are as near.
func TestBestNICs(t *testing.T) {
	for _, c := range []struct {
		machine string
		gpu     int
		nics    string
		how     Word
	}{
		{"dgx-h100", 5, "mlx5_9", PXB},
		{"hgx-h200", 3, "mlx5_3", PIX},
		{"gb200-nvl", 2, "mlx5_2 mlx5_3 mlx5_6 mlx5_7", NODE},
		{"cloud-vm", 0, "ens5 ens6", PHB},
		{"pcie", 3, "mlx5_0 mlx5_1 mlx5_2 eno1", SYS},
		{"mig", 0, "mlx5_0", PIX},
	} {
		top := Read(machine(t, c.machine))
		best, how := top.BestNICs(c.gpu)
		var names []string
		for _, i := range best {
			names = append(names, top.Devices[i].Name)
		}
		if got := strings.Join(names, " "); got != c.nics || how != c.how {
			t.Errorf("%s: GPU%d is nearest to %q (%s), want %q (%s)", c.machine, c.gpu, got, how, c.nics, c.how)
		}
	}
}

// TestNoAddress: of a GPU that cannot even be opened no address is known, which is nobody's mistake in writing one.
func TestNoAddress(t *testing.T) {
	top := Read(t.TempDir(), []GPU{{NUMA: -1, MemoryNode: -1}}, nil)
	if d := top.Devices[0]; d.Problem != "its PCI address is not known" {
		t.Errorf("%+v", d)
	}
	var out strings.Builder
	if err := top.Matrix(&out); err != nil || !strings.Contains(out.String(), "\n  GPU0: N/A; its PCI address is not known\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestVanished: devices that went away since they were listed cost nobody else, and the matrix says why it does not know.
func TestVanished(t *testing.T) {
	root, gpus, nics := machine(t, "dgx-h100")
	for _, addr := range []string{"0000:1b:00.0", "0000:9a:00.0"} {
		if err := os.Remove(filepath.Join(root, "bus/pci/devices", addr)); err != nil {
			t.Fatal(err)
		}
	}
	gpus[1].PCI = "somewhere"
	top := Read(root, gpus, nics)
	for id, says := range map[string]string{"GPU0": "is not in /sys", "NIC4": "is not in /sys", "GPU1": `PCI address "somewhere": want DOMAIN:BUS`} {
		i := slices.IndexFunc(top.Devices, func(d Device) bool { return d.ID == id })
		if d := top.Devices[i]; !strings.Contains(d.Problem, says) || d.Node != -1 || d.CPUs != "" {
			t.Errorf("%s: %+v, want a problem with %q", id, d, says)
		}
	}
	for _, c := range []struct {
		a, b string
		want Word
	}{
		{"GPU0", "NIC0", Unknown},
		{"GPU4", "NIC4", Unknown},
		{"GPU0", "GPU2", NV(18)}, // NVLink does not care
		{"GPU2", "NIC2", PXB},
		{"GPU2", "NIC3", NODE},
	} {
		if got := way(t, top, c.a, c.b); got != c.want {
			t.Errorf("%s to %s: %s, want %s", c.a, c.b, got, c.want)
		}
	}
	if nics, how := top.BestNICs(0); nics != nil || how != Unknown {
		t.Errorf("a GPU that is nowhere is %s from NICs %v", how, nics)
	}
	var out strings.Builder
	if err := top.Matrix(&out); err != nil || !strings.Contains(out.String(), "? ") || !strings.Contains(out.String(), "= not known") {
		t.Errorf("the matrix does not explain what is not known: %v\n%s", err, out.String())
	}
}

// TestShapes are trees that are odd in one way each.
func TestShapes(t *testing.T) {
	for _, c := range []struct {
		name, tree string
		pci        [2]string
		numa       int // as the driver says
		nodes      [2]int
		want       Word
	}{
		{
			name: "storage controllers are host bridges within host bridges",
			tree: `
-- bus/pci/devices/10000:e1:00.0 -> ../../../devices/pci0000:97/0000:97:00.5/pci10000:e0/10000:e0:02.0/10000:e1:00.0 --
-- bus/pci/devices/10000:e2:00.0 -> ../../../devices/pci0000:97/0000:97:00.5/pci10000:e0/10000:e0:03.0/10000:e2:00.0 --
-- devices/pci0000:97/0000:97:00.5/pci10000:e0/10000:e0:02.0/10000:e1:00.0/numa_node --
0
-- devices/pci0000:97/0000:97:00.5/pci10000:e0/10000:e0:03.0/10000:e2:00.0/numa_node --
0
`,
			pci: [2]string{"10000:E1:00.0", "10000:e2:00.0"}, numa: -1, want: PIX,
		},
		{
			name: "in a Hyper-V machine each device that is passed through has a domain of its own",
			tree: `
-- bus/pci/devices/0001:00:00.0 -> ../../../devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-0001-0001-3130-444531303244/pci0001:00/0001:00:00.0 --
-- bus/pci/devices/0101:00:00.0 -> ../../../devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/6b2ab0b1-0101-4b3e-8a3c-1d1e2c3a4b5c/pci0101:00/0101:00:00.0 --
-- devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-0001-0001-3130-444531303244/pci0001:00/0001:00:00.0/numa_node --
1
-- devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/6b2ab0b1-0101-4b3e-8a3c-1d1e2c3a4b5c/pci0101:00/0101:00:00.0/numa_node --
1
-- devices/system/node/node0/cpulist --
0-3
-- devices/system/node/node1/cpulist --
4-7
`,
			pci: [2]string{"0001:00:00.0", "0101:00:00.0"}, numa: -1, nodes: [2]int{1, 1}, want: NODE,
		},
		{
			name: "a bridge knows the node of what is behind it, and the driver knows it when nothing else does",
			tree: `
-- bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0 --
-- bus/pci/devices/0000:81:00.0 -> ../../../devices/pci0000:80/0000:80:01.0/0000:81:00.0 --
-- devices/pci0000:00/0000:00:01.0/numa_node --
0
-- devices/pci0000:00/0000:00:01.0/0000:01:00.0/numa_node --
-1
-- devices/pci0000:80/0000:80:01.0/0000:81:00.0/numa_node --
-1
-- devices/system/node/node0/cpulist --
0-3
-- devices/system/node/node1/cpulist --
4-7
`,
			pci: [2]string{"01:00.0", "81:00.0"}, numa: 1, nodes: [2]int{0, 1}, want: SYS,
		},
		{
			name: "without a folder of nodes everything is at node 0",
			tree: `
-- bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0 --
-- bus/pci/devices/0000:81:00.0 -> ../../../devices/pci0000:80/0000:80:01.0/0000:81:00.0 --
-- devices/pci0000:00/0000:00:01.0/0000:01:00.0/ --
-- devices/pci0000:80/0000:80:01.0/0000:81:00.0/ --
-- devices/system/cpu/online --
0-15
`,
			pci: [2]string{"0000:01:00.0", "0000:81:00.0"}, numa: -1, want: NODE,
		},
		{
			name: "two names of one function",
			tree: `
-- bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0 --
-- devices/pci0000:00/0000:00:01.0/0000:01:00.0/ --
`,
			pci: [2]string{"0000:01:00.0", "0000:01:00.0"}, numa: -1, want: PIX,
		},
		{
			name: "what is below no root complex is nowhere",
			tree: `
-- bus/pci/devices/0000:01:00.0 -> ../../../devices/platform/0000:01:00.0 --
-- bus/pci/devices/0000:02:00.0 -> ../../../devices/platform/0000:02:00.0 --
-- devices/platform/0000:01:00.0/ --
-- devices/platform/0000:02:00.0/ --
`,
			pci: [2]string{"0000:01:00.0", "0000:02:00.0"}, numa: -1, nodes: [2]int{-1, -1}, want: Unknown,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := Read(fixture.Text(t, c.tree), []GPU{{PCI: c.pci[0], NUMA: c.numa, MemoryNode: -1}}, []NIC{{PCI: c.pci[1], NUMA: c.numa}})
			if got := way(t, top, "GPU0", "NIC0"); got != c.want {
				t.Errorf("the way is %s, want %s (%+v)", got, c.want, top.Devices)
			}
			if got := [2]int{top.Devices[0].Node, top.Devices[1].Node}; got != c.nodes {
				t.Errorf("nodes %v, want %v", got, c.nodes)
			}
		})
	}
}

// TestNVLink: direct links count as they are, switched ones as the GPU with fewer has, within one fabric.
func TestNVLink(t *testing.T) {
	gpu := func(pci, fabric string, switched int, links ...NVLink) GPU {
		return GPU{PCI: pci, Fabric: fabric, SwitchLinks: switched, Links: links}
	}
	const a, b = "0000:01:00.0", "0000:02:00.0"
	for _, c := range []struct {
		name string
		x, y GPU
		want int
	}{
		{"none", gpu(a, "", 0), gpu(b, "", 0), 0},
		{"direct", gpu(a, "", 0, NVLink{"00000000:02:00.0", 4}), gpu(b, "", 0, NVLink{a, 4}), 4},
		{"direct, as one end says", gpu(a, "", 0, NVLink{b, 2}, NVLink{b, 2}), gpu(b, "", 0), 4},
		{"another GPU's", gpu(a, "", 0, NVLink{"0000:03:00.0", 4}), gpu(b, "", 0), 0},
		{"switched", gpu(a, "f/1", 18), gpu(b, "f/1", 16), 16},
		{"two cliques of one fabric", gpu(a, "f/1", 18), gpu(b, "f/2", 18), 0},
		{"one is not on the switch", gpu(a, "", 18), gpu(b, "", 0), 0},
	} {
		if got := nvlinks(&c.x, &c.y); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		if got := nvlinks(&c.y, &c.x); got != c.want {
			t.Errorf("%s, the other way: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestAddress(t *testing.T) {
	for in, want := range map[string]string{
		"00000000:1B:00.0": "0000:1b:00.0", "0000:1b:00.0": "0000:1b:00.0", "1b:00.0": "0000:1b:00.0", "00010000:E1:1F.7": "10000:e1:1f.7",
		"": "", "0000:1b:00": "", "0000:1b:20.0": "", "0000:1b:00.8": "", "0000:100:00.0": "", "a:b:c:d.0": "", "0000:1b:../etc.0": "", "GPU-1b": "",
	} {
		got, err := Address(in)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

// TestWords: ranks order the words as users read them.
func TestWords(t *testing.T) {
	order := []Word{Self, NV(1), PIX, PXB, PHB, NODE, SYS, Unknown}
	for i, w := range order {
		if w.Rank() != i {
			t.Errorf("%s has rank %d, want %d", w, w.Rank(), i)
		}
	}
	if NV(12).NVLinks() != 12 || PIX.NVLinks() != 0 || Word("NVx").Rank() != Unknown.Rank() {
		t.Error("NV12 is 12 NVLinks, and nothing else is")
	}
}
