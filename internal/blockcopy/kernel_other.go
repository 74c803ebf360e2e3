//go:build !amd64

package blockcopy

// kernels returns the implementations that this processor can run, best first.
func kernels() []kernel { return []kernel{portable} }

// groups and one are for implementations with lanes, of which there are none
// here.
func (k kernel) groups(*lane, int, int) { panic("blockcopy: no lanes on this processor") }
func (k kernel) one(*lane, int)         { panic("blockcopy: no lanes on this processor") }

// fence orders nothing here: the runtime's copy uses ordinary stores, and an
// atomic store that announces them comes after them.
func fence() {}
