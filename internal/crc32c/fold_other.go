//go:build !amd64

package crc32c

// wide is set where this processor has the instructions that fold uses.
const wide = false

func fold(uint32, []byte) uint32 { panic("crc32c: no wide instructions on this processor") }
