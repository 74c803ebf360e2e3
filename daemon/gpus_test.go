//go:build cgo

package daemon

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/discovery/topology"
	"github.com/kvpipe/kvpipe/test/fakenvml"
)

// withGPUs starts a daemon on a box.
func withGPUs(t *testing.T, text string) (*node, *fakenvml.Box) {
	t.Helper()
	box := fakenvml.Open(t, text)
	n := start(t, "a", t.TempDir(), func(c *config.Config) { c.GPU.NVML = fakenvml.Library(t) })
	return n, box
}

func (n *node) says(what string) {
	n.t.Helper()
	eventually(n.t, "the log has "+what, func() bool { return strings.Contains(n.log.String(), what) })
}

// scraped is the page of metrics.
func (n *node) scraped() string {
	n.t.Helper()
	r, err := http.Get("http://" + n.web.Addr().String() + "/metrics")
	if err != nil {
		n.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		n.t.Fatalf("%s, %v: %s", r.Status, err, b)
	}
	http.DefaultClient.CloseIdleConnections()
	return string(b)
}

// TestGPUs: what NVML tells is seen in status, list and metrics; an error and a lost GPU are warnings, each once, and end nothing.
func TestGPUs(t *testing.T) {
	n, box := withGPUs(t, fakenvml.Scenario(t, "mig"))
	n.says("msg=gpus count=2 driver=570.133.20 cuda=12.8")
	g := get[admin.GPUs](n, "gpus")
	if g.State != "ok" || g.Reason != "" || len(g.Devices) != 2 || g.Devices[0].PCI != "0000:1b:00.0" || len(g.Devices[0].Instances) != 3 || g.Devices[0].Instances[0].Profile != "3g.71gb" {
		t.Errorf("%+v", g)
	}
	box.Say("GPU-m1", "xid 94")
	n.says("uuid=GPU-m1 xid=94")
	box.Say("GPU-m1", "answer 15")
	n.says("msg=\"gpu lost\" gpu=0000:43:00.0 uuid=GPU-m1")
	s := get[admin.Status](n, "status")
	if s.State != "running" || s.GPUs.Count != 2 || s.GPUs.Lost != 1 || s.GPUs.Driver != "570.133.20" {
		t.Errorf("%+v", s.GPUs)
	}
	if d := get[admin.GPUs](n, "gpus").Devices[1]; !d.Lost || d.Xid == nil || d.Xid.Code != 94 || d.Xid.Count != 1 || !strings.Contains(d.Xid.Text, "contained memory error") {
		t.Errorf("%+v", d)
	}
	page := n.scraped()
	for _, want := range []string{
		`kvpipe_gpu_discovery{state="ok"} 1`, `kvpipe_gpus{state="ok"} 1`, `kvpipe_gpus{state="lost"} 1`, `kvpipe_gpu_errors_total{uuid="GPU-m1"} 1`,
		`kvpipe_gpu_last_xid{uuid="GPU-m1"} 94`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	n.stop()
	for _, once := range []string{"gpu error", "gpu lost", "msg=gpus"} {
		if got := strings.Count(n.log.String(), once); got != 1 {
			t.Errorf("%q is logged %d times", once, got)
		}
	}
}

// TestUnreadableGPUs: several GPUs that cannot even be opened have no UUID, and metrics all the same.
func TestUnreadableGPUs(t *testing.T) {
	n, _ := withGPUs(t, strings.ReplaceAll(fakenvml.Scenario(t, "a100"), "mig 0", "handle 4"))
	n.says("msg=gpus count=2")
	if page := n.scraped(); !strings.Contains(page, "kvpipe_gpus{state=\"unreadable\"} 2\n") || strings.Contains(page, "kvpipe_gpu_errors_total{") {
		t.Errorf("metrics:\n%s", page)
	}
}

// TestDriverMismatch: a node whose GPUs cannot be used is warned of, and serves.
func TestDriverMismatch(t *testing.T) {
	n, _ := withGPUs(t, "driver 570.133.20\ninit 18\n")
	n.says("state=driver_mismatch")
	if s := get[admin.Status](n, "status"); s.State != "running" || s.GPUs.State != "driver_mismatch" || !strings.Contains(s.GPUs.Fix, "restart kvpiped") {
		t.Errorf("%+v", s.GPUs)
	}
	if !strings.Contains(n.log.String(), "level=WARN msg=\"no gpus\"") {
		t.Error("it is no warning")
	}
}

// TestNoGPUsWanted: gpu.nvml = "off" is information.
func TestNoGPUsWanted(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	n.says("level=INFO msg=\"no gpus\" state=off")
	if g := get[admin.GPUs](n, "gpus"); g.State != "off" || g.Devices == nil {
		t.Errorf("%+v", g)
	}
}

// TestGPUsInTopology: what NVML finds is in the topology, with what joins it, and without /sys at least with that.
func TestGPUsInTopology(t *testing.T) {
	n, _ := withGPUs(t, fakenvml.Scenario(t, "h200"))
	n.says("msg=gpus")
	got := get[admin.Topology](n, "topology")
	for i, d := range got.Devices {
		if d.Kind == topology.KindGPU && i > 0 && got.Links[0][i] != topology.NV(18) {
			t.Errorf("from GPU0 to %s it is %s, want NV18 (%+v)", d.ID, got.Links[0][i], d)
		}
	}
	if len(got.Nearest) != 8 {
		t.Errorf("%d GPUs in the topology: %+v, want 8", len(got.Nearest), got.Nearest)
	}
}
