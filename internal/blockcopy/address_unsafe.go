package blockcopy

import "unsafe"

// address returns where b lies.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// misaligned returns how many bytes of b come before the first line border.
func misaligned(b []byte) int { return int(-address(b) & (line - 1)) }
