package version

import "testing"

func TestString(t *testing.T) {
	defer func(was string) { version = was }(version)

	version = ""
	if got := String(); got == "" {
		t.Error("a build without a version says nothing about itself")
	}
	version = "1.2.3"
	if got := String(); got != "1.2.3" {
		t.Errorf("String() = %q, want what the linker set", got)
	}
}

// TestProtocols: what a binary was written for holds unless the linker set something else, which has to make sense.
func TestProtocols(t *testing.T) {
	defer func(r, p string) { rings, peers = r, p }(rings, peers)
	rings, peers = "", "2-3"
	if got := Rings(1, 4); got != [2]uint32{1, 4} {
		t.Errorf("rings: %v", got)
	}
	if got := Peers(1, 4); got != [2]uint32{2, 3} {
		t.Errorf("peers: %v", got)
	}
	for _, bad := range []string{"1", "1-x", "-1", "3-2"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is taken", bad)
				}
			}()
			speaks(bad, 1, 1)
		}()
	}
}
