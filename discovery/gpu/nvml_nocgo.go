//go:build !cgo

package gpu

// newSource returns no source: NVML is a C library, and this binary was built without C.
func newSource(Config) (source, Inventory) {
	return nil, Inventory{
		State: NoCgo, Reason: "this kvpiped was built without cgo (CGO_ENABLED=0), which NVML needs",
		Fix: "build it with cgo (make build), or install it from a package, if this node has GPUs",
	}
}
