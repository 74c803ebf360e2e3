package blockcopy

import "unsafe"

// address returns the address of b.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// misaligned returns how many bytes of b come before the first boundary of a
// line.
func misaligned(b []byte) int { return int(-address(b) & (line - 1)) }
