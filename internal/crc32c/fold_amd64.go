package crc32c

import "golang.org/x/sys/cpu"

// wide is set where this processor has the instructions that fold uses.
var wide = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasSSE42

// fold continues a state with p, of which the length is a multiple of stride and not 0.
//
//go:noescape
func fold(state uint32, p []byte) uint32
