package topology

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kvpipe/kvpipe/discovery/internal/sysfs"
)

// Node is a NUMA node.
type Node struct {
	ID int `json:"id"`
	// CPUs is a list such as "0-3,8"; empty for nodes that only have memory.
	CPUs string `json:"cpus"`
	// Bytes is the node's memory.
	Bytes uint64 `json:"bytes"`
	// Distance is the distance to each node, in their order, as the firmware gives it (10: this one). Empty: it gives
	// none.
	Distance []int `json:"distance"`
}

// Nodes returns the NUMA nodes in the tree below root ("/sys"), by id. A tree without nodes has one, 0, with all
// online CPUs.
func Nodes(root string) []Node {
	dir := filepath.Join(root, "devices/system/node")
	entries, _ := os.ReadDir(dir) // an error means a kernel without NUMA, or a container that hides it
	var nodes []Node
	for _, e := range entries {
		id, ok := numbered(e.Name(), "node")
		if !ok {
			continue
		}
		at := filepath.Join(dir, e.Name())
		nodes = append(nodes, Node{ID: id, CPUs: sysfs.Text(at, "cpulist"), Bytes: memTotal(at), Distance: integers(sysfs.Text(at, "distance"))})
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	for i := range nodes {
		if len(nodes[i].Distance) != len(nodes) { // read while a node came or went
			nodes[i].Distance = []int{}
		}
	}
	if len(nodes) == 0 {
		nodes = []Node{{CPUs: sysfs.Text(root, "devices/system/cpu/online"), Distance: []int{}}}
	}
	return nodes
}

// numbered takes the number from a name such as "node12".
func numbered(name, prefix string) (int, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 0
}

// memTotal reads the line "Node 0 MemTotal:  1056412 kB" of a node's meminfo.
func memTotal(node string) uint64 {
	for line := range strings.Lines(sysfs.Text(node, "meminfo")) {
		_, rest, ok := strings.Cut(line, "MemTotal:")
		var kib uint64
		if _, err := fmt.Sscan(rest, &kib); ok && err == nil {
			return kib << 10
		}
	}
	return 0
}

func integers(s string) (out []int) {
	for f := range strings.FieldsSeq(s) {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil
		}
		out = append(out, n)
	}
	return out
}
