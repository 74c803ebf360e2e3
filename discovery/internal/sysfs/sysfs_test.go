package sysfs

import (
	"path/filepath"
	"testing"

	"github.com/kvpipe/kvpipe/discovery/internal/fixture"
	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestIsFunction(t *testing.T) {
	for name, want := range map[string]bool{
		"0000:1b:00.0": true, "10000:01:00.7": true, // domains of VMD have five digits
		"0000:1b:00.8": false, "pci0000:15": false, "1b:00.0": false, "0000:1B:00.0": false, "virtio0": false,
	} {
		if IsFunction(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

func TestDevices(t *testing.T) {
	root := fixture.Text(t, "-- known/numa_node --\n3\n-- unknown/numa_node --\n-1\n-- broken/numa_node --\nx\n-- silent/speed --\n")
	for device, want := range map[string]int{"known": 3, "unknown": -1, "broken": -1, "silent": -1, "gone": -1} {
		if got := NUMA(filepath.Join(root, device)); got != want {
			t.Errorf("%s is on node %d, not %d", device, got, want)
		}
	}
	if got := Text(root, "known", "numa_node"); got != "3" {
		t.Errorf("text %q", got)
	}
	if got := Text(root, "gone", "numa_node"); got != "" {
		t.Errorf("a file that is not there says %q", got)
	}
}
