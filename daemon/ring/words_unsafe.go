package ring

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// word32 returns the index word at offset off of b; it shares b's memory. It panics when the word lies outside b or is
// misaligned: offsets are this package's own, never a client's.
func word32(b []byte, off int) *atomic.Uint32 {
	p := unsafe.Pointer(&b[off : off+4 : off+4][0])
	if uintptr(p)%4 != 0 {
		panic(fmt.Sprintf("ring: word at offset %d is not aligned to 4 bytes", off))
	}
	return (*atomic.Uint32)(p)
}

// word64 is word32 for the 8-byte words.
func word64(b []byte, off int) *atomic.Uint64 {
	p := unsafe.Pointer(&b[off : off+8 : off+8][0])
	if uintptr(p)%8 != 0 {
		panic(fmt.Sprintf("ring: word at offset %d is not aligned to 8 bytes", off))
	}
	return (*atomic.Uint64)(p)
}
