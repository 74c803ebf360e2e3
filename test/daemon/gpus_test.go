package daemon

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/test/fakenvml"
)

// TestGPUs: the daemon finds a box's GPUs beside its work, and goes on when one of them falls off the bus.
func TestGPUs(t *testing.T) {
	box := fakenvml.Open(t, fakenvml.Scenario(t, "h200"))
	dir := tempDir(t)
	file := write(t, filepath.Join(dir, "c.toml"), "metrics = \"off\"\n[gpu]\nnvml = %q\n", fakenvml.Library(t))
	p := dev(t, dir, "a", "--config", file)
	admin := filepath.Join(dir, "a", "admin.sock")
	p.await("msg=gpus count=8 driver=570.133.20")
	out := ctl(t, admin, "gpus")
	if strings.Count(out, "18/18 up, 478 GB/s") != 8 || !strings.Contains(out, "0000:9d:00.0") {
		t.Errorf("gpus:\n%s", out)
	}
	box.Say("GPU-h4", "xid 79")
	p.await("uuid=GPU-h4 xid=79")
	box.Say("GPU-h4", "answer 15")
	p.await("msg=\"gpu lost\" gpu=0000:9d:00.0")
	if out := ctl(t, admin, "gpus"); !strings.Contains(out, "GPU 4: last of 1 errors: Xid 79") || strings.Count(out, " lost ") < 1 {
		t.Errorf("gpus with a lost one:\n%s", out)
	}
	if out := ctl(t, admin, "bench", "--seconds", "0.001", "--sizes", "4096"); !strings.Contains(out, "GB/s") {
		t.Errorf("it moves nothing any more:\n%s", out)
	}
	if out := ctl(t, admin, "doctor", "--socket", filepath.Join(dir, "a", "kvpiped.sock")); !strings.Contains(out, "warning  gpus: 1 of 8 are lost") {
		t.Errorf("doctor:\n%s", out)
	}
	p.stop()
}

// TestNoGPUs: a node whose NVML is not where the configuration says runs, and warns of it once.
func TestNoGPUs(t *testing.T) {
	dir := tempDir(t)
	file := write(t, filepath.Join(dir, "c.toml"), "metrics = \"off\"\n[gpu]\nnvml = %q\n", filepath.Join(dir, "libnvidia-ml.so.1"))
	p := dev(t, dir, "a", "--config", file)
	if line := p.await("msg=\"no gpus\""); !strings.Contains(line, "level=WARN") || !strings.Contains(line, "state=no_library") {
		t.Error(line)
	}
	if out := ctl(t, filepath.Join(dir, "a", "admin.sock"), "gpus"); !strings.Contains(out, "none (no_library): NVML cannot be loaded") || !strings.Contains(out, "fix: nothing, if this node has no GPU") {
		t.Errorf("gpus:\n%s", out)
	}
	p.stop()
}
