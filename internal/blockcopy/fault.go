package blockcopy

import "fmt"

// Side is an end of a copy.
type Side int

// The sides on which a fault can be. SideUnknown is for addresses that the
// kernel reports imprecisely, as it may for huge pages and broken memory.
const (
	SideUnknown Side = iota
	SideSource
	SideDestination
)

// String names the side for error messages.
func (s Side) String() string {
	switch s {
	case SideSource:
		return "source"
	case SideDestination:
		return "destination"
	}
	return "source or destination"
}

// Fault is the error of a copy that met memory it could not access: truncated,
// unmapped, protected or broken.
type Fault struct {
	// Addr is the address in this process, as the kernel reported it.
	Addr uintptr
	// Side says which end of the copy the address belongs to.
	Side Side
	// Run is the index of the run, and Off the offset in it, of the access that
	// failed. Earlier bytes may be as bad. Run is -1 when Side is SideUnknown.
	Run int
	Off int
}

// Error says which run failed and where.
func (f *Fault) Error() string {
	if f.Run < 0 {
		return fmt.Sprintf("copy: memory at %#x is not accessible", f.Addr)
	}
	return fmt.Sprintf("copy run %d: %v memory is not accessible at offset %d", f.Run, f.Side, f.Off)
}

// fault turns what recover returned into the error of the batch in progress.
// Anything but a memory fault is a bug and panics again.
func (c *cursor) fault(recovered any) error {
	f, ok := recovered.(interface {
		error
		Addr() uintptr
	})
	if !ok {
		panic(recovered)
	}
	addr := f.Addr()
	for i := c.first; i < len(c.runs) && i <= c.i; i++ {
		if off, ok := within(addr, c.runs[i].Src); ok {
			return &Fault{Addr: addr, Side: SideSource, Run: i, Off: off}
		}
		if off, ok := within(addr, c.runs[i].Dst); ok {
			return &Fault{Addr: addr, Side: SideDestination, Run: i, Off: off}
		}
	}
	return &Fault{Addr: addr, Run: -1}
}

func within(addr uintptr, b []byte) (off int, ok bool) {
	d := addr - address(b) // below b this wraps round to more than any length
	return int(d), d < uintptr(len(b))
}
