package gpu

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvpipe/kvpipe/discovery/internal/fixture"
)

// TestDMABuf: whether memory can be exported is derived from the driver's kind and the kernel, and says so.
func TestDMABuf(t *testing.T) {
	const open = "-- proc/driver/nvidia/version --\nNVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release Build  (x@y)  Sun\nGCC version: 12\n"
	for name, c := range map[string]struct {
		tree string
		can  bool
		why  string
	}{
		"open":            {open + "-- proc/sys/kernel/osrelease --\n6.14.0-1003-nvidia-64k\n", true, "open kernel module 580.65.06, kernel 6.14.0-1003-nvidia-64k (derived"},
		"oldest kernel":   {open + "-- proc/sys/kernel/osrelease --\n5.12.0\n", true, "kernel 5.12.0"},
		"older kernel":    {open + "-- proc/sys/kernel/osrelease --\n5.4.0-150-generic\n", false, "NICs take dma-bufs from 5.12 on"},
		"no kernel":       {open, false, "unknown: the kernel's version"},
		"proprietary":     {"-- proc/driver/nvidia/version --\nNVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n", false, "the proprietary one 535.129.03: install"},
		"not to be known": {"", false, "unknown: /proc/driver/nvidia/version"},
	} {
		can, why := host(fixture.Text(t, c.tree)).dmaBuf()
		if can != c.can || !strings.Contains(why, c.why) {
			t.Errorf("%s: %v, %q", name, can, why)
		}
	}
}

func TestHost(t *testing.T) {
	h := host(fixture.Text(t, "-- proc/driver/nvidia/gpus/0000:DF:00.0/information --\n-- proc/driver/nvidia/gpus/0000:1b:00.0/information --\n-- sys/bus/pci/devices/0000:1b:00.0/numa_node --\n3\n"))
	got, ok := h.gpus()
	if diff := cmp.Diff([]string{"0000:1b:00.0", "0000:df:00.0"}, got); diff != "" || !ok {
		t.Errorf("%v (-want +got):\n%s", ok, diff)
	}
	if _, ok := host("/nowhere").gpus(); ok {
		t.Error("a kernel without the driver lists GPUs")
	}
	if h.numa("0000:1b:00.0") != 3 || h.numa("0000:df:00.0") != -1 {
		t.Errorf("nodes %d, %d", h.numa("0000:1b:00.0"), h.numa("0000:df:00.0"))
	}
}

// TestXidText: every Xid has words, if only where to look it up.
func TestXidText(t *testing.T) {
	if s := XidText(79); !strings.Contains(s, "fallen off the bus") {
		t.Error(s)
	}
	if s := XidText(12345); !strings.Contains(s, "12345") {
		t.Error(s)
	}
}
