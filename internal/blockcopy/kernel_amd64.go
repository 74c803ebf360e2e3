package blockcopy

import "golang.org/x/sys/cpu"

// kernels returns the implementations that this processor can run, best first.
func kernels() []kernel {
	var ks []kernel
	if cpu.X86.HasAVX512F {
		ks = append(ks, avx512)
	}
	if cpu.X86.HasAVX2 {
		ks = append(ks, avx2)
	}
	return append(ks, portable)
}

// four copies n bytes, a multiple of line and not 0, of each of the pieces from
// l on, four pieces in turn, a line of each, for so many groups of four. It
// has the beginnings of the next four fetched meanwhile, of the four behind
// the last group too: they must exist, but may be anything.
func (k kernel) four(l *lane, n, groups int) {
	if k == avx512 {
		fourAVX512(l, n, groups)
	} else {
		fourAVX2(l, n, groups)
	}
}

// one copies n bytes, a multiple of line and not 0, of one piece.
func (k kernel) one(l *lane, n int) {
	if k == avx512 {
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
