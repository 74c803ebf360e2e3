package sys

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestParseCPUs(t *testing.T) {
	for list, want := range map[string]string{
		"": "", " \n": "", "0": "0", "0-3,8": "0-3,8", "8,0-1,2,3": "0-3,8", "0-55,112-167\n": "0-55,112-167", "1023": "1023", "3-3": "3", "1,1-2": "1-2",
	} {
		c, err := ParseCPUs(list)
		noErr(t, err)
		if got := c.String(); got != want {
			t.Errorf("%q is %q, want %q", list, got, want)
		}
	}
	for _, bad := range []string{"a", "1-", "-1", "3-1", "1,,2", "1024", "0-1024", "0x1", "1 2"} {
		if c, err := ParseCPUs(bad); err == nil || !strings.Contains(err.Error(), `"0-3,8"`) {
			t.Errorf("%q: %v, %v; want an error that shows a good list", bad, c, err)
		}
	}
	a, err := ParseCPUs("0-3,8")
	noErr(t, err)
	b, err := ParseCPUs("2-8")
	noErr(t, err)
	if got := a.And(b); got.String() != "2-3,8" || got.Count() != 3 || a.String() != "0-3,8" {
		t.Errorf("0-3,8 and 2-8 is %q, of %d", got, got.Count())
	}
}

// allowed is what the kernel says of the calling thread.
func allowed(t *testing.T) string {
	b, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Error(err)
	}
	_, rest, _ := strings.Cut(string(b), "Cpus_allowed_list:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// TestCPUsArePerThread: one thread moves to a CPU and back, others stay.
func TestCPUsArePerThread(t *testing.T) {
	onThread(func() {
		before, err := ThreadCPUs()
		if err != nil || before.String() != allowed(t) {
			t.Errorf("CPUs %q, %v; the kernel says %q", before, err, allowed(t))
			return
		}
		first, _, _ := strings.Cut(before.String(), "-")
		first, _, _ = strings.Cut(first, ",")
		one, err := ParseCPUs(first)
		if err != nil {
			t.Error(err)
		}
		if err := SetThreadCPUs(one); err != nil {
			t.Error(err)
		}
		if got := allowed(t); got != first {
			t.Errorf("the thread runs on %q, want %q", got, first)
		}
		onThread(func() {
			if got := allowed(t); got != before.String() {
				t.Errorf("another thread runs on %q, want %q", got, before)
			}
		})
		if err := SetThreadCPUs(before); err != nil {
			t.Error(err)
		}
		if got := allowed(t); got != before.String() {
			t.Errorf("the thread runs on %q, want %q again", got, before)
		}
		if err := SetThreadCPUs(CPUs{}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("no CPU at all: %v, want EINVAL", err)
		}
	})
}

// TestPageNodes: pages that are there lie on a node, others are not looked for.
func TestPageNodes(t *testing.T) {
	fd, err := MemfdCreate("page-nodes", 4<<12, MemfdOptions{Prefault: true})
	noErr(t, err)
	defer func() { noErr(t, Close(fd)) }()
	b, err := Mmap(fd, 4<<12, ProtWrite)
	noErr(t, err)
	defer func() { noErr(t, Munmap(b)) }()
	b[1<<12] = 1 // the second page is in our tables now
	node := []int{7, 7, 7}
	if err := PageNodes([][]byte{b[:1], b[1<<12:], nil}, node); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) {
			t.Skipf("move_pages is not allowed here: %v", err)
		}
		t.Fatal(err)
	}
	if node[1] < 0 || node[2] != -1 {
		t.Errorf("nodes %v: the second page is there, the third nowhere", node)
	}
	many, nodes := make([][]byte, MaxPageNodes+1), make([]int, MaxPageNodes+1)
	for i := range many {
		many[i], nodes[i] = b[1<<12:], 7
	}
	noErr(t, PageNodes(many, nodes))
	if nodes[MaxPageNodes-1] != node[1] || nodes[MaxPageNodes] != 7 {
		t.Errorf("nodes %v: want %d of them looked up", nodes, MaxPageNodes)
	}
	if n := testing.AllocsPerRun(100, func() { _ = PageNodes(many[:1], nodes[:1]) }); n != 0 && !raceEnabled {
		t.Errorf("%v allocations", n)
	}
	runtime.KeepAlive(b)
}
