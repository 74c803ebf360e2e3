package blockcopy

import "golang.org/x/sys/cpu"

// kernels returns the implementations that this processor can run, best first.
func kernels() []kernel {
	var ks []kernel
	switch {
	case cpu.X86.HasAVX512F && fetchesOn():
		ks = append(ks, avx512Long, avx512)
	case cpu.X86.HasAVX512F:
		ks = append(ks, avx512, avx512Long)
	}
	if cpu.X86.HasAVX2 {
		ks = append(ks, avx2)
	}
	return append(ks, portable)
}

// fetchesOn tells whether this processor fetches ahead beyond the end of a page: then four runs in turn are faster than four pages in
// turn, which make it fetch what another lane fetches too. AMD's family 1Ah (Zen 5) does: blocks of 64 KiB at 19.6 GB/s instead of 13.7
// by one thread, at 37 instead of 24 by two (BenchmarkBlocks). No other was measured to.
func fetchesOn() bool {
	_, b, c, d := cpuid(0)
	a, _, _, _ := cpuid(1)
	family := a >> 8 & 0xf
	if family == 0xf {
		family += a >> 20 & 0xff
	}
	return b == 'A'|'u'<<8|'t'<<16|'h'<<24 && d == 'e'|'n'<<8|'t'<<16|'i'<<24 && c == 'c'|'A'<<8|'M'<<16|'D'<<24 && family == 0x1a
}

// four copies n bytes, a multiple of line and not 0, of each of the pieces from
// l on, four pieces in turn, a line of each, for so many groups of four. It
// has the beginnings of the next four fetched meanwhile, of the four behind
// the last group too: they must exist, but may be anything.
func (k kernel) four(l *lane, n, groups int) {
	if k != avx2 {
		fourAVX512(l, n, groups)
	} else {
		fourAVX2(l, n, groups)
	}
}

// one copies n bytes, a multiple of line and not 0, of one piece.
func (k kernel) one(l *lane, n int) {
	if k != avx2 {
		oneAVX512(l, n)
	} else {
		oneAVX2(l, n)
	}
}

// fence orders all non-temporal stores of this thread before later stores. It
// also cleans up what a kernel that was left by a fault did not: wide
// registers in use slow older instructions down.
func fence() {
	sfence()
	if cpu.X86.HasAVX {
		vzeroupper()
	}
}

//go:noescape
func fourAVX512(l *lane, n, groups int)

//go:noescape
func oneAVX512(l *lane, n int)

//go:noescape
func fourAVX2(l *lane, n, groups int)

//go:noescape
func oneAVX2(l *lane, n int)

func sfence()

func vzeroupper()

// cpuid is the instruction, for leaves without subleaves.
func cpuid(leaf uint32) (a, b, c, d uint32)
