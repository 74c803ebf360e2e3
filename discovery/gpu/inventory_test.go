package gpu

import "testing"

// TestFindDevice: a GPU is found by its UUID, and one without a UUID by nothing.
func TestFindDevice(t *testing.T) {
	i := Inventory{State: OK, Devices: []Device{{Index: 0, Lost: true}, {Index: 1, UUID: "GPU-1"}}}
	if d, ok := i.Device("GPU-1"); !ok || d.Index != 1 {
		t.Errorf("GPU-1 is %+v, %v", d, ok)
	}
	for _, uuid := range []string{"", "GPU-2"} {
		if d, ok := i.Device(uuid); ok {
			t.Errorf("%q is %+v", uuid, d)
		}
	}
}

// TestInFabric: a GPU that finished its attempt to join is in only when that went well.
func TestInFabric(t *testing.T) {
	for f, want := range map[Fabric]bool{
		{}:                                     false,
		{State: "in_progress"}:                 false,
		{State: "completed"}:                   true,
		{State: "completed", Status: "no way"}: false,
	} {
		if f.In() != want {
			t.Errorf("%+v: in a fabric: %v", f, !want)
		}
	}
}
