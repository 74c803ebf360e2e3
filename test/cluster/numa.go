package cluster

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// TwoNUMANodes makes a /sys (kvpiped --sys) of a machine with two NUMA nodes, which have one of this machine's CPUs each: threads move
// between those as they do on such a machine. Where there is one CPU alone there is one node.
func TwoNUMANodes(t *testing.T) (root string, cpus []string) {
	t.Helper()
	all, err := sys.ThreadCPUs()
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n <= sys.MaxCPU && len(cpus) < 2; n++ {
		one, err := sys.ParseCPUs(strconv.Itoa(n))
		if err != nil {
			t.Fatal(err)
		}
		if one.And(all) == one {
			cpus = append(cpus, one.String())
		}
	}
	root = t.TempDir()
	for id, list := range cpus {
		dir := filepath.Join(root, "devices/system/node/node"+strconv.Itoa(id))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cpulist"), []byte(list+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root, cpus
}
