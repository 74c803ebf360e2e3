// Package placetest makes a machine with one NUMA node look like one with two. Its first two CPUs are a node each, and
// memory lies where the test says. The CPUs are real, so a test sees where threads really run.
package placetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/place"
	"github.com/kvpipe/kvpipe/discovery/topology"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Machine is a machine of two nodes, 0 and 1.
type Machine struct {
	Places *place.Places
	CPUs   [2]string // of each node
	All    string    // what threads begin with

	mu     sync.Mutex
	memory []span

	scattered bool
}

// span is memory that lies on a node.
type span struct {
	first, last uintptr
	node        int
}

// New makes a machine. It skips the test if the process may use only one CPU.
func New(t testing.TB) *Machine {
	t.Helper()
	all, err := sys.ThreadCPUs()
	if err != nil {
		t.Fatal(err)
	}
	m := &Machine{All: all.String()}
	n := 0
	for cpu := 0; cpu <= sys.MaxCPU && n < 2; cpu++ {
		one, err := sys.ParseCPUs(strconv.Itoa(cpu))
		if err != nil {
			t.Fatal(err)
		}
		if one.And(all) == one {
			m.CPUs[n] = one.String()
			n++
		}
	}
	if n < 2 {
		t.Skipf("one CPU (%s): two nodes need two", m.All)
	}
	var why string
	m.Places, why = place.New([]topology.Node{{ID: 0, CPUs: m.CPUs[0]}, {ID: 1, CPUs: m.CPUs[1]}}, all, m.where)
	if m.Places == nil {
		t.Fatal(why)
	}
	return m
}

// Put says that b lies on a node. b itself stays where it is.
func (m *Machine) Put(b []byte, node int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := address(b)
	m.memory = append(m.memory, span{first, first + uintptr(len(b)) - 1, node})
}

func (m *Machine) where(page [][]byte, node []int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, b := range page {
		node[i] = -1
		if m.scattered {
			node[i] = int(address(b) >> 16 & 1)
		}
		for _, s := range m.memory {
			if at := address(b); at >= s.first && at <= s.last {
				node[i] = s.node
			}
		}
	}
	return nil
}

// Scattered says that memory lies on the two nodes in turn, 64 KiB each, and returns the machine's Places.
func (m *Machine) Scattered() *place.Places {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scattered = true
	return m.Places
}

// Here returns the CPUs that the calling thread may run on, according to the kernel.
func Here(t testing.TB) string {
	t.Helper()
	return allowed(t, "/proc/thread-self/status")
}

// Threads returns how many threads of this process may run on each set of CPUs.
func Threads(t testing.TB) map[string]int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Error(err)
	}
	n := map[string]int{}
	for _, f := range files {
		if cpus := allowed(t, f); cpus != "" {
			n[cpus]++
		}
	}
	return n
}

// allowed reads the CPUs of a thread; "": the thread is gone.
func allowed(t testing.TB, status string) string {
	t.Helper()
	b, err := os.ReadFile(status)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return ""
	}
	if err != nil {
		t.Error(err)
	}
	_, rest, _ := strings.Cut(string(b), "Cpus_allowed_list:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}
