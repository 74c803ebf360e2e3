// Package version knows the version of the binary that it is linked into.
package version

import "runtime/debug"

// version is set by the linker: -X .../internal/version.version=1.2.3.
var version string

// String returns the version of this binary: what the build set, else the
// version of the module when the binary came from `go install`, else "devel".
func String() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}
