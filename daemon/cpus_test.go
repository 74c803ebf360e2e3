package daemon

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestCPUs: every thread stays on the CPUs that the configuration names, and a CPU that is not there is told of.
func TestCPUs(t *testing.T) {
	have, err := sys.ThreadCPUs()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sys.SetProcessCPUs(have); err != nil {
			t.Error(err)
		}
	})
	first, _, _ := strings.Cut(strings.NewReplacer("-", ",").Replace(have.String()), ",")
	procs := runtime.GOMAXPROCS(0)
	n := start(t, "a", t.TempDir(), func(c *config.Config) { c.CPUs, c.Local.CopyWorkers, c.TCP.Streams = first+",1023", 1, 1 })
	if log := n.log.String(); !strings.Contains(log, "some of them are not there") || !strings.Contains(log, "used="+first) {
		t.Errorf("a CPU that is not there:\n%s", log)
	}
	if got := runtime.GOMAXPROCS(procs); got != 4 { // a worker and two, and one for the stream
		t.Errorf("GOMAXPROCS is %d on one CPU", got)
	}
	threads, _ := filepath.Glob("/proc/self/task/*/status")
	for _, status := range threads {
		b, err := os.ReadFile(status)
		if err == nil && !strings.Contains(string(b), "Cpus_allowed_list:\t"+first+"\n") {
			t.Errorf("a thread may run elsewhere:\n%s", b)
		}
	}
}

// TestCPUsThatAreNotThere: a daemon that could run nowhere runs wherever it may, and says where it could be kept.
func TestCPUsThatAreNotThere(t *testing.T) {
	have, err := sys.ThreadCPUs()
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, "a", t.TempDir(), func(c *config.Config) { c.CPUs = "1022-1023" })
	if want := "cpus=1022-1023 there=" + have.String(); !strings.Contains(n.log.String(), want) {
		t.Errorf("the log lacks %q", want)
	}
	if now, err := sys.ThreadCPUs(); err != nil || now != have {
		t.Errorf("it runs on %s, %v, want %s", now, err, have)
	}
}
