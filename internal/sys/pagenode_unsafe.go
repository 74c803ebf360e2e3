package sys

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxPageNodes is the most pages that one call of PageNodes looks at.
const MaxPageNodes = 16

// PageNodes says on which NUMA nodes pages of this process lie. node[i] becomes
// that of the page with the first byte of page[i], or -1 when that page is not
// in the page tables of this process (it is elsewhere, or nowhere yet, or not
// mapped at all). Nothing is touched or moved: bad memory is never a signal. It
// looks at no more than MaxPageNodes pages. A sandbox may forbid the system
// call, move_pages(2).
func PageNodes(page [][]byte, node []int) error {
	n := min(len(page), len(node), MaxPageNodes)
	if n == 0 {
		return nil
	}
	var at [MaxPageNodes]unsafe.Pointer
	var status [MaxPageNodes]int32
	for i := range n {
		at[i] = unsafe.Pointer(unsafe.SliceData(page[i]))
	}
	_, _, errno := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, uintptr(n), uintptr(unsafe.Pointer(&at)), 0, uintptr(unsafe.Pointer(&status)), 0)
	if errno != 0 {
		return fmt.Errorf("ask on which NUMA nodes pages lie (move_pages): %w", errno)
	}
	for i := range n {
		node[i] = max(int(status[i]), -1) // errors are negative
	}
	return nil
}
