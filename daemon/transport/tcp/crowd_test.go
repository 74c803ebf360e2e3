package tcp

import (
	"runtime"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestCrowd: a daemon that is kept on one CPU has one stream spin, on however large a machine.
func TestCrowd(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, err := sys.ThreadCPUs()
	if err != nil {
		t.Fatal(err)
	}
	one, err := sys.ParseCPUs(strings.FieldsFunc(all.String(), func(r rune) bool { return r == ',' || r == '-' })[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cpus sys.CPUs
		spin int64
	}{{one, 1}, {all, max(int64(all.Count()/2), 1)}} {
		if err := sys.SetThreadCPUs(c.cpus); err != nil {
			t.Fatal(err)
		}
		tr := New(Config{Sink: transporttest.NewRecorder()})
		tr.crowd.streaming.Add(c.spin)
		few := tr.crowd.crowded()
		tr.crowd.streaming.Add(1)
		if few || !tr.crowd.crowded() {
			t.Errorf("on CPUs %s: crowded by %d: %t, by one more: %t", c.cpus, c.spin, few, tr.crowd.crowded())
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
}
