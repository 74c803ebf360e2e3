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
	avx512Rows // avx512, but for long pieces, which it copies one after the other
)

var kernelNames = [...]string{portable: "copy", avx2: "avx2", avx512: "avx512", avx512Rows: "avx512-rows"}

func (k kernel) String() string { return kernelNames[k] }

// best is the first implementation that this processor can run.
var best = kernels()[0]
