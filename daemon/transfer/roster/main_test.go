package roster

import (
	"flag"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

// The simulator's flag, so that it can be given to both packages at once.
var _ = flag.Int("seeds", 0, "for package sim; not used here")

func TestMain(m *testing.M) { leak.Main(m) }
