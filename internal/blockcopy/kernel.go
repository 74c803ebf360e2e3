package blockcopy

// kernel is one implementation of the inner loop. It is a number rather than a
// table of functions, because calls through a table would make lanes escape to
// the heap, once for each batch.
type kernel uint8

// The implementations. Those with lanes store past the caches and in no order:
// fence must follow.
const (
	portable kernel = iota // the runtime's copy
	avx2
	avx2Two // avx2 with two pieces in turn, as long as runs are
	avx512
	avx512Long // avx512 with pieces as long as runs are
	avx512Far  // the same, with all lines fetched early
)

// traits describe a kernel with lanes.
type traits struct {
	name  string
	width int // how many pieces it copies in turn
	piece int // the longest of them, in bytes
}

var traitsOf = [...]traits{
	portable:   {name: "copy"},
	avx2:       {"avx2", 4, page},
	avx2Two:    {"avx2-two", 2, Quantum / 2},
	avx512:     {"avx512", 4, page},
	avx512Long: {"avx512-long", 4, Quantum / 4},
	avx512Far:  {"avx512-far", 4, Quantum / 4},
}

func (k kernel) String() string { return traitsOf[k].name }
func (k kernel) width() int     { return traitsOf[k].width }
func (k kernel) piece() int     { return traitsOf[k].piece }

// best is the best implementation that this processor can run.
var best = kernels()[0]
