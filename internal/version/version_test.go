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
