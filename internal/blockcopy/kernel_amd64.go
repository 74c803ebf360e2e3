package blockcopy

import "golang.org/x/sys/cpu"

// kernels returns the implementations that this processor can run, best first.
func kernels() []kernel {
	var ks []kernel
	switch {
	case cpu.X86.HasAVX512F && amd() && family() == family1A:
		ks = append(ks, avx512Far, avx512Long, avx512)
	case cpu.X86.HasAVX512F && amd() && family() == family19:
		ks = append(ks, avx512Long, avx512, avx512Far)
	case cpu.X86.HasAVX512F:
		ks = append(ks, avx512, avx512Long, avx512Far)
	}
	switch {
	case cpu.X86.HasAVX2 && amd():
		ks = append(ks, avx2Two, avx2)
	case cpu.X86.HasAVX2:
		ks = append(ks, avx2, avx2Two)
	}
	return append(ks, portable)
}

// Families of AMD processors of which one with AVX-512 was measured
// (BenchmarkBlocks). Intel's processors want four pages in turn.
const (
	// family19, measured on Zen 4, is faster with four runs in turn: it copies
	// blocks of 64 KiB at 18.3 GB/s instead of 13.2 by one thread, at 23.8
	// instead of 20.2 by two, and blocks of 8 KiB at 10.6 either way. Asking
	// for every line early costs it a fifth.
	family19 = 0x19
	// family1A, measured on Zen 5, fetches ahead beyond the end of a page, so
	// with four pages in turn it fetches what another lane fetches, too: with
	// runs in turn it copies blocks of 64 KiB at 19.6 GB/s instead of 13.7 by
	// one thread, at 37 instead of 24 by two. But it does not fetch soon enough:
	// if every line is asked for 2 KiB early, one thread copies blocks of 64 KiB
	// at 28.2 GB/s instead of 25.8, and blocks of 8 KiB at 18.9 instead of 16.8.
	family1A = 0x1a
)

// amd reports whether AMD made this processor. With AVX2, AMD's Zen 3 copies
// two runs in turn faster than four pages: blocks of 64 KiB at 1.97 instead of
// 1.58 times the runtime's copy by one thread, at 2.68 instead of 2.35 by two;
// blocks of 8 KiB at 1.83 instead of 1.73 (BenchmarkBlocks). Earlier families
// were not measured.
func amd() bool {
	_, b, c, d := cpuid(0)
	return b == 'A'|'u'<<8|'t'<<16|'h'<<24 && d == 'e'|'n'<<8|'t'<<16|'i'<<24 && c == 'c'|'A'<<8|'M'<<16|'D'<<24
}

// family returns the family of this processor, the extended one included.
func family() uint32 {
	a, _, _, _ := cpuid(1)
	f := a >> 8 & 0xf
	if f == 0xf {
		f += a >> 20 & 0xff
	}
	return f
}

// groups copies n bytes of each piece from l on, in so many groups: the width
// pieces of a group take turns, line by line. n is a multiple of line and not 0.
// Meanwhile it fetches the beginnings of the next group, even behind the last
// one: those pieces must exist, but may be anything.
func (k kernel) groups(l *lane, n, groups int) {
	switch k {
	case avx2:
		fourAVX2(l, n, groups)
	case avx2Two:
		twoAVX2(l, n, groups)
	case avx512Far:
		fourFarAVX512(l, n, groups)
	default:
		fourAVX512(l, n, groups)
	}
}

// one copies n bytes of one piece; n is a multiple of line and not 0.
func (k kernel) one(l *lane, n int) {
	if k == avx2 || k == avx2Two {
		oneAVX2(l, n)
	} else {
		oneAVX512(l, n)
	}
}

// fence orders all non-temporal stores of this thread before later stores. It
// also cleans up after a kernel that a fault ended: wide registers left in use
// slow older instructions down.
func fence() {
	sfence()
	if cpu.X86.HasAVX {
		vzeroupper()
	}
}

//go:noescape
func fourAVX512(l *lane, n, groups int)

//go:noescape
func fourFarAVX512(l *lane, n, groups int)

//go:noescape
func oneAVX512(l *lane, n int)

//go:noescape
func fourAVX2(l *lane, n, groups int)

//go:noescape
func twoAVX2(l *lane, n, groups int)

//go:noescape
func oneAVX2(l *lane, n int)

func sfence()

func vzeroupper()

// cpuid executes the CPUID instruction, for leaves without subleaves.
func cpuid(leaf uint32) (a, b, c, d uint32)
