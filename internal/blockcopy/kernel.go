package blockcopy

// kernel is one implementation of the inner loop. It is a number and not a
// table of functions, because calls through those would make lanes escape to
// the heap, once for each batch.
type kernel uint8

// The implementations. Those with lanes store past the caches and without
// order: fence must follow.
const (
	portable kernel = iota // the runtime's copy
	avx2
	avx512
	avx512Long // avx512 with pieces as long as runs are
)

var kernelNames = [...]string{portable: "copy", avx2: "avx2", avx512: "avx512", avx512Long: "avx512-long"}

func (k kernel) String() string { return kernelNames[k] }

// piece is the longest piece of a kernel with lanes.
func (k kernel) piece() int {
	if k == avx512Long {
		return stretch
	}
	return page
}

// best is the first implementation that this processor can run.
var best = kernels()[0]
