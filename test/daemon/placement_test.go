package daemon

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	nodes "github.com/kvpipe/kvpipe/test/cluster"
)

// TestPlacement: on a machine with two NUMA nodes the daemon has a copy worker on the CPUs of each, and all its other threads go where
// they like; what is copied is copied on the node of its memory.
func TestPlacement(t *testing.T) {
	sys, cpus := nodes.TwoNUMANodes(t)
	if len(cpus) < 2 {
		t.Skipf("one CPU (%s): two nodes need two", cpus)
	}
	dir := tempDir(t)
	p := dev(t, dir, "a", "--sys", sys)
	socket := filepath.Join(dir, "a", "admin.sock")
	eventually(t, "a copy worker waits on each node", func() bool {
		on := threads(t, p.cmd.Process.Pid)
		return on[cpus[0]] == 1 && on[cpus[1]] == 1 && len(on) == 3
	})
	ctl(t, socket, "bench", "--seconds", "0.01", "--sizes", "1048576")
	top := ask[admin.Topology](t, socket, "topology")
	if len(top.Placement.Nodes) != 2 || len(top.Nodes) != 2 {
		t.Fatalf("%+v", top)
	}
	moved, there, on := uint64(0), 0, threads(t, p.cmd.Process.Pid)
	for i, n := range top.Placement.Nodes {
		moved, there = moved+n.Bytes, there+n.Threads
		if n.Threads != on[cpus[i]] {
			t.Errorf("%d threads are said to be at node %d; threads run on CPUs %v", n.Threads, n.Node, on)
		}
	}
	if there != 2 {
		t.Errorf("%d threads are at nodes, want both copy workers: %+v", there, top.Placement.Nodes)
	}
	if !top.Placement.Active {
		t.Logf("the kernel does not say where memory is: %s", top.Placement.Reason)
	} else if moved == 0 {
		t.Errorf("nothing was copied because of where it is: %+v", top.Placement.Nodes)
	}
	if said := ctl(t, socket, "topology"); !strings.Contains(said, "node 1   "+cpus[1]) || !strings.Contains(said, "Placement: ") {
		t.Errorf("kvpipectl topology says\n%s", said)
	}
	drawn := filepath.Join(dir, "t.svg")
	ctl(t, socket, "topology", "--svg", drawn)
	f, err := os.Open(drawn)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := xml.NewDecoder(f); err == nil; {
		_, err = d.Token()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the drawing is no XML: %v", err)
	}
	p.stop()
}

// threads counts a process's threads by the CPUs that they may run on.
func threads(t *testing.T, pid int) map[string]int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	on := map[string]int{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(b), "Cpus_allowed_list:")
		line, _, _ := strings.Cut(rest, "\n")
		on[strings.TrimSpace(line)]++
	}
	return on
}

// TestSysIsForDevelopment: a daemon in service is on the machine it is on.
func TestSysIsForDevelopment(t *testing.T) {
	if said := fails(t, "--sys", "/tmp"); !strings.Contains(said, "--sys goes with --dev") {
		t.Errorf("it says %q", said)
	}
}
