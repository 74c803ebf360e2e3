package root

import (
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
	"github.com/kvpipe/kvpipe/test/cluster"
)

func TestMain(m *testing.M) { leak.Main(cluster.Built(m)) }
