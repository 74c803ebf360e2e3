package main

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/admin/admintest"
)

// TestNoGPUs: instead of an empty table there is why, and what to do.
func TestNoGPUs(t *testing.T) {
	src := &admintest.Source{
		G: admin.GPUs{State: "driver_mismatch", Reason: "library and driver differ", Fix: "reboot"},
		S: admin.Status{GPUs: admin.GPUSummary{State: "no_library", Reason: "NVML cannot be loaded"}},
	}
	socket := admintest.Serve(t, src)
	if out, err := ctlRun(t.Context(), "gpus", "--admin", socket); err != nil || out != "none (driver_mismatch): library and driver differ\nfix: reboot\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := ctlRun(t.Context(), "status", "--admin", socket); err != nil || !strings.Contains(out, "none (no_library): NVML cannot be loaded\n") {
		t.Errorf("%q, %v", out, err)
	}
}

// TestFabric: what the table says of a GPU's place in a fabric.
func TestFabric(t *testing.T) {
	for want, f := range map[string]*admin.Fabric{
		"-":                     nil,
		"in_progress":           {State: "in_progress"},
		"this node":             {State: "completed"},
		"7f3ac1de clique 5":     {State: "completed", Cluster: "7f3ac1de-51b2-4c8e-9d0a-6b5c4d3e2f10", Clique: 5},
		"failed: Unknown Error": {State: "completed", Status: "Unknown Error"},
	} {
		if got := fabric(f); got != want {
			t.Errorf("%+v is %q, want %q", f, got, want)
		}
	}
}

// TestGPUsOfAnNVMLThatHangs: what was known is shown, and that it may be old.
func TestGPUsOfAnNVMLThatHangs(t *testing.T) {
	if got, want := gpuLine(admin.GPUSummary{State: "ok", Count: 8, Driver: "570", Reason: "it hangs"}), "8, driver 570: it hangs"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var out strings.Builder
	printGPUs(&out, admin.GPUs{State: "ok", Reason: "it hangs", Fix: "look", Devices: []admin.GPU{{Name: "NVIDIA H200"}}})
	if got := out.String(); !strings.Contains(got, "NVIDIA H200") || !strings.Contains(got, "note: it hangs\nfix: look\n") {
		t.Errorf("gpus:\n%s", got)
	}
}
