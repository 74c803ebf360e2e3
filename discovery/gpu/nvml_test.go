//go:build cgo

package gpu

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvpipe/kvpipe/discovery/internal/fixture"
	"github.com/kvpipe/kvpipe/test/fakenvml"
)

// kernel is what the kernel of a node with an open driver says of it.
const kernel = `
-- proc/driver/nvidia/version --
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (dvs-builder@U22)
-- proc/sys/kernel/osrelease --
6.8.0-60-generic
-- sys/bus/pci/devices/0000:1b:00.0/numa_node --
0
-- sys/bus/pci/devices/0000:9d:00.0/numa_node --
1
-- sys/bus/pci/devices/0000:af:00.0/numa_node --
-1
`

const derived = "open kernel module 570.133.20, kernel 6.8.0-60-generic (derived from these, the driver was not asked)"

// opened is NVML behind its real loader, on a box that the test can change.
func opened(t *testing.T, text string) (*library, *fakenvml.Box, Inventory) {
	t.Helper()
	box := fakenvml.Open(t, text)
	src, _ := newSource(Config{Library: fakenvml.Library(t), Root: fixture.Text(t, kernel)})
	l := src.(*library)
	i := l.open()
	if i.State == OK {
		t.Cleanup(l.close)
	}
	return l, box, i
}

func find(t *testing.T, i Inventory, uuid string) Device {
	t.Helper()
	d, ok := i.Device(uuid)
	if !ok {
		t.Fatalf("%s is not in %+v", uuid, i)
	}
	return d
}

// TestH200: everything that there is to know of a box with NVSwitches.
func TestH200(t *testing.T) {
	_, _, i := opened(t, fakenvml.Scenario(t, "h200"))
	if i.State != OK || i.Reason != "" || i.Driver != "570.133.20" || i.CUDA != "12.8" || len(i.Devices) != 8 {
		t.Fatalf("%+v", i)
	}
	want := Device{
		Index: 4, UUID: "GPU-h4", Name: "NVIDIA H200", PCI: "0000:9d:00.0", NUMA: 1, MemoryNUMA: -1, Memory: 150754820096, BAR1: 256 << 30,
		Fabric: Fabric{State: "completed"}, DMABuf: true, WhyDMABuf: derived,
	}
	for n := range 18 {
		want.Links = append(want.Links, Link{Number: n, Active: true, Version: "4.0", Speed: 26562e6, Remote: RemoteSwitch, PCI: "0000:05:00.0"})
	}
	if diff := cmp.Diff(want, find(t, i, "GPU-h4")); diff != "" {
		t.Errorf("GPU 4 (-want +got):\n%s", diff)
	}
	if d := find(t, i, "GPU-h0"); d.NUMA != 0 || d.PCI != "0000:1b:00.0" {
		t.Errorf("GPU 0: %+v", d)
	}
	if d := find(t, i, "GPU-h1"); d.NUMA != -1 {
		t.Errorf("GPU 1, of which sysfs says nothing, is at node %d", d.NUMA)
	}
}

// TestA100: NVLinks from card to card, one of them down; no fabric.
func TestA100(t *testing.T) {
	_, _, i := opened(t, fakenvml.Scenario(t, "a100"))
	d := find(t, i, "GPU-a1")
	if len(d.Links) != 12 || d.LinksUp() != 11 || d.Fabric != (Fabric{}) || d.MIG {
		t.Fatalf("%+v", d)
	}
	if diff := cmp.Diff([]Link{
		{Number: 10, Active: true, Version: "3.0", Speed: 25e9, Remote: RemoteGPU, PCI: "0000:17:00.0"},
		{Number: 11, Remote: RemoteUnknown},
	}, d.Links[10:]); diff != "" {
		t.Errorf("the last links (-want +got):\n%s", diff)
	}
}

// TestGB200: memory that is a NUMA node, PCI domains, and a fabric that reaches over nodes.
func TestGB200(t *testing.T) {
	_, _, i := opened(t, fakenvml.Scenario(t, "gb200"))
	d := find(t, i, "GPU-g2")
	if d.PCI != "0018:01:00.0" || d.MemoryNUMA != 18 || d.LinksUp() != 18 || d.Links[0].PCI != "" || d.Links[0].Version != "5.0" {
		t.Errorf("%+v", d)
	}
	if want := (Fabric{State: "completed", Cluster: "7f3ac1de-51b2-4c8e-9d0a-6b5c4d3e2f10", Clique: 32766}); d.Fabric != want || !d.Fabric.In() {
		t.Errorf("fabric %+v, want %+v", d.Fabric, want)
	}
}

// TestMIG: the parts of a split GPU, named as nvidia-smi does, whether or not the driver names them.
func TestMIG(t *testing.T) {
	l, box, i := opened(t, fakenvml.Scenario(t, "mig"))
	want := []Instance{
		{UUID: "MIG-3g", GPU: 2, Compute: 0, Profile: "3g.71gb", Memory: 71424 << 20},
		{UUID: "MIG-2g", GPU: 3, Compute: 0, Profile: "2g.35gb", Memory: 35712 << 20},
		{UUID: "MIG-1c", GPU: 5, Compute: 1, Profile: "1c.2g.35gb", Memory: 35712 << 20},
	}
	if diff := cmp.Diff(want, find(t, i, "GPU-m0").Instances); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	if d := find(t, i, "GPU-m1"); d.MIG || len(d.Instances) != 0 {
		t.Errorf("the other GPU: %+v", d)
	}
	if v := l.look(); v != same {
		t.Errorf("nothing changed, and it is %v", v)
	}
	box.Set(strings.ReplaceAll(box.Text(), "instance MIG-2g", "instance MIG-new"))
	if v := l.look(); v != changed {
		t.Errorf("an instance was replaced, and it is %v", v)
	}
	if got := find(t, l.read(), "GPU-m0").Instances[1].UUID; got != "MIG-new" {
		t.Errorf("it is %s", got)
	}
}

// TestPCIe: a card that has little; what NVML does not support stays unknown, and no failure.
func TestPCIe(t *testing.T) {
	_, _, i := opened(t, fakenvml.Scenario(t, "pcie"))
	want := Device{
		UUID: "GPU-p0", Name: "NVIDIA L4", PCI: "0000:af:00.0", NUMA: -1, MemoryNUMA: -1, Memory: 24146608128, BAR1: 256 << 20, DMABuf: true, WhyDMABuf: derived,
	}
	if diff := cmp.Diff(want, find(t, i, "GPU-p0")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStates: whatever keeps NVML from working is a state with a reason and, where something can be done, what.
func TestStates(t *testing.T) {
	const box = "driver 570.133.20\ncuda 12080\n"
	for _, c := range []struct {
		name, text string
		state      State
		reason     string
		fix        string
	}{
		{"no driver", box + "init 9\n", NoDriver, "the kernel driver is not loaded", "modprobe nvidia"},
		{"no GPU", box, NoGPU, "the driver has no GPU", ""},
		{"no GPU, said at the start", box + "init 28\n", NoGPU, "the driver has no GPU", ""},
		{"driver mismatch", box + "init 18\n", Mismatch, "of different versions, as after an upgrade of the driver (the kernel has 570.133.20)", "then restart kvpiped"},
		{"no permission", box + "init 4\n", NoPermission, "Insufficient Permissions", "systemctl restart kvpiped, if the driver was loaded after it started"},
		{"something else", box + "init 17\n", Failed, "Unknown Error (17)", "nvidia-smi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, i := opened(t, c.text)
			if i.State != c.state || !strings.Contains(i.Reason, c.reason) || !strings.Contains(i.Fix, c.fix) || len(i.Devices) != 0 {
				t.Errorf("%+v", i)
			}
		})
	}
}

// TestNoLibrary: neither a missing library nor one that is no NVML is a failure.
func TestNoLibrary(t *testing.T) {
	for path, want := range map[string]struct {
		state State
		says  string
	}{
		"/nowhere/libnvidia-ml.so.1": {NoLibrary, "/nowhere/libnvidia-ml.so.1: cannot open shared object file"},
		"libc.so.6":                  {Failed, "libc.so.6 has no nvmlInit_v2"},
	} {
		src, _ := newSource(Config{Library: path})
		if i := src.open(); i.State != want.state || !strings.Contains(i.Reason, want.says) || i.Fix == "" {
			t.Errorf("%s: %+v", path, i)
		}
	}
}

// TestOldDriver: functions that a driver does not have are not called, which would end the process. It needs a process of its own,
// since the loader binds names once.
func TestOldDriver(t *testing.T) {
	if os.Getenv("KVPIPE_TEST_OLD") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestOldDriver$", "-test.v")
		cmd.Env = append(os.Environ(), "KVPIPE_TEST_OLD=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		return
	}
	fakenvml.Open(t, fakenvml.Scenario(t, "mig"))
	src, _ := newSource(Config{Library: fakenvml.OldLibrary(t)})
	i := src.open()
	defer src.close()
	if d := find(t, i, "GPU-m0"); d.Name != "NVIDIA H200" || d.MIG || len(d.Links) != 0 || i.CUDA != "12.8" {
		t.Errorf("%+v of %+v", d, i)
	}
	if v := src.look(); v != same {
		t.Errorf("looking again: %v", v)
	}
}

// TestComesAndGoes: the number of GPUs, or what the kernel driver lists, makes NVML start again.
func TestComesAndGoes(t *testing.T) {
	l, box, i := opened(t, fakenvml.Scenario(t, "a100"))
	if len(i.Devices) != 2 || l.look() != same {
		t.Fatalf("%+v", i)
	}
	box.Set(fakenvml.Scenario(t, "pcie"))
	if v := l.look(); v != gone {
		t.Errorf("a GPU less is %v", v)
	}
	box.Set(fakenvml.Scenario(t, "a100"))
	root := string(l.host)
	if err := fixture.Unpack(root, []byte("-- proc/driver/nvidia/gpus/0000:17:00.0/ --\n")); err != nil {
		t.Fatal(err)
	}
	if v := l.look(); v != gone {
		t.Errorf("another GPU in /proc is %v", v)
	}
	for range 3 {
		l.close()
		if i := l.open(); i.State != OK || l.look() != same {
			t.Fatalf("started again: %+v", i)
		}
	}
}

// TestLost: a GPU that falls off the bus keeps its description, the others go on, and it may come back.
func TestLost(t *testing.T) {
	l, box, _ := opened(t, fakenvml.Scenario(t, "a100"))
	box.Say("GPU-a0", "answer 15")
	if _, what := l.ask(); what != failed {
		t.Errorf("asking with a lost GPU: %v", what)
	}
	i := l.read()
	d := find(t, i, "GPU-a0")
	if !d.Lost || !strings.Contains(d.Problem, "GPU is lost: restart the node") || d.Name != "NVIDIA A100-PCIE-80GB" || len(d.Links) != 12 {
		t.Errorf("the lost one: %+v", d)
	}
	if d := find(t, i, "GPU-a1"); d.Lost || d.Problem != "" {
		t.Errorf("the other one: %+v", d)
	}
	if v := l.look(); v != same {
		t.Errorf("still lost: %v", v)
	}
	box.Say("GPU-a1", "xid 31")
	if r, what := l.ask(); what != arrived || r != (report{uuid: "GPU-a1", code: 31}) {
		t.Errorf("an error of the other one: %+v, %v", r, what)
	}
	box.Set(fakenvml.Scenario(t, "a100"))
	if v := l.look(); v != changed {
		t.Errorf("back again: %v", v)
	}
	if d := find(t, l.read(), "GPU-a0"); d.Lost || d.Problem != "" {
		t.Errorf("back again: %+v", d)
	}
	box.Say("GPU-a0", "xid 13")
	if r, what := l.ask(); what != arrived || r.uuid != "GPU-a0" {
		t.Errorf("its errors are not heard of again: %+v, %v", r, what)
	}
}

// TestAskingFails: a set of events that fails for whatever reason is given up, and the next reading makes another.
func TestAskingFails(t *testing.T) {
	text := fakenvml.Scenario(t, "a100")
	l, box, _ := opened(t, text)
	box.Set("wait 999\n" + text)
	if _, what := l.ask(); what != failed || l.events != nil {
		t.Errorf("%v, %v", what, l.events)
	}
	if _, what := l.ask(); what != useless {
		t.Errorf("without a set: %v", what)
	}
	box.Set(text)
	l.read()
	box.Say("GPU-a1", "xid 13")
	if _, what := l.ask(); what != arrived {
		t.Errorf("with another set: %v", what)
	}
}

// TestSubscribingFails: a GPU whose errors cannot be subscribed to, as whatever call fails, is heard from the next reading on.
func TestSubscribingFails(t *testing.T) {
	text := fakenvml.Scenario(t, "pcie")
	for at := range 100 { // so many that opening does not ask so often
		box := fakenvml.Open(t, fmt.Sprintf("fail %d 999\n%s", at+1, text))
		src, _ := newSource(Config{Library: fakenvml.Library(t)})
		l := src.(*library)
		l.open()
		box.Set(text)
		l.read()
		box.Say("GPU-p0", "xid 31")
		if r, what := l.ask(); what != arrived || r != (report{uuid: "GPU-p0", code: 31}) {
			t.Errorf("call %d failed: %+v, %v", at+1, r, what)
		}
		l.close()
	}
}

// TestCannotOpen: a GPU that this process may not open is listed with what is the matter, and tried again.
func TestCannotOpen(t *testing.T) {
	text := fakenvml.Scenario(t, "a100")
	for code, want := range map[int]struct {
		lost bool
		says string
	}{4: {false, "Insufficient Permissions"}, 15: {true, "GPU is lost"}} {
		l, box, i := opened(t, strings.Replace(text, "mig 0\n", fmt.Sprintf("mig 0\nhandle %d\n", code), 1))
		if len(i.Devices) != 2 || i.Devices[0].Lost != want.lost || !strings.Contains(i.Devices[0].Problem, want.says) || i.Devices[0].UUID != "" || i.Devices[1].UUID != "GPU-a1" {
			t.Errorf("%+v", i)
		}
		box.Set(text)
		if d := l.read().Devices[0]; d.UUID != "GPU-a0" || d.Problem != "" {
			t.Errorf("after it can be opened: %+v", d)
		}
	}
}

// TestXidOfInstance: an error within a MIG instance says which.
func TestXidOfInstance(t *testing.T) {
	l, box, _ := opened(t, fakenvml.Scenario(t, "mig"))
	box.Say("GPU-m0", "xid 94 3 0")
	if r, what := l.ask(); what != arrived || r != (report{uuid: "GPU-m0", instance: "MIG-2g", code: 94}) {
		t.Errorf("%+v, %v", r, what)
	}
}

// TestXidOfNoInstance: an error of the GPU as a whole is of no instance, not even of one whose numbers NVML does not tell.
func TestXidOfNoInstance(t *testing.T) {
	l, box, _ := opened(t, fakenvml.Scenario(t, "mig"))
	l.has["nvmlDeviceGetGpuInstanceId"] = false
	l.read()
	box.Say("GPU-m0", "xid 79")
	if r, what := l.ask(); what != arrived || r != (report{uuid: "GPU-m0", code: 79}) {
		t.Errorf("%+v, %v", r, what)
	}
}

// TestDriverGoes: of a driver that is no longer loaded no version is told.
func TestDriverGoes(t *testing.T) {
	text := fakenvml.Scenario(t, "a100")
	l, box, i := opened(t, text)
	if i.Driver == "" || i.CUDA == "" {
		t.Fatalf("%+v", i)
	}
	l.close()
	box.Set("init 9\n" + text)
	if i := l.open(); i.State != NoDriver || i.Driver != "" || i.CUDA != "" {
		t.Errorf("%+v", i)
	}
	box.Set(text)
	if i := l.open(); i.State != OK || i.Driver == "" || i.CUDA == "" {
		t.Errorf("%+v", i)
	}
}

func TestProfiles(t *testing.T) {
	const a100 = 42505273344 // of 40 GB
	for _, c := range []struct {
		compute, slices uint32
		memory, whole   uint64
		want            string
	}{
		{1, 1, 4864 << 20, a100, "1g.5gb"},
		{3, 3, 19968 << 20, a100, "3g.20gb"},
		{7, 7, 40192 << 20, a100, "7g.40gb"},
		{1, 3, 19968 << 20, a100, "1c.3g.20gb"},
		{1, 1, 4864 << 20, 0, ""},
		{0, 0, 0, a100, ""},
	} {
		if got := profile(c.compute, c.slices, c.memory, c.whole); got != c.want {
			t.Errorf("%+v is %q", c, got)
		}
	}
}

// TestAnyCallMayFail: whichever question NVML does not answer, the GPUs are listed, and known in full once it answers.
func TestAnyCallMayFail(t *testing.T) {
	text := fakenvml.Scenario(t, "mig")
	l, box, whole := opened(t, text)
	for code, why := range map[int]string{3: "not supported", 15: "lost", 999: "unknown"} {
		for at, same := 1, 0; same < 100; at++ { // so many that read does not ask so often
			box.Set(fmt.Sprintf("fail %d %d\n%s", at, code, text))
			i := l.read()
			if i.State != OK || len(i.Devices) != len(whole.Devices) {
				t.Fatalf("call %d is %s: %+v", at, why, i)
			}
			lost := 0
			for _, d := range i.Devices {
				if d.Lost {
					lost++
				}
			}
			if lost > 1 || lost == 1 && code != 15 {
				t.Errorf("call %d is %s: %d lost GPUs", at, why, lost)
			}
			if same++; !cmp.Equal(i, whole) {
				same = 0
			}
			box.Set(text)
			if diff := cmp.Diff(whole, l.read()); diff != "" {
				t.Fatalf("after call %d was %s (-want +got):\n%s", at, why, diff)
			}
		}
	}
}

// TestCountsThatLie: GPUs that NVML counts and does not have cannot be opened; a count that no machine has is not believed.
func TestCountsThatLie(t *testing.T) {
	text := fakenvml.Scenario(t, "mig")
	_, box, i := opened(t, "claim 4\n"+text)
	if i.State != OK || len(i.Devices) != 4 || i.Devices[1].Problem != "" || i.Devices[2].Problem == "" || i.Devices[3].Problem == "" {
		t.Errorf("%+v", i)
	}
	box.Set("claim 4000000000\n" + text)
	src, _ := newSource(Config{Library: fakenvml.Library(t)})
	if i := src.open(); i.State != Failed || len(i.Devices) > 0 || !strings.Contains(i.Reason, "4000000000 GPUs") {
		t.Errorf("%s: %s, %d GPUs", i.State, i.Reason, len(i.Devices))
	}
}
