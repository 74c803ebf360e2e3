package hostile

import (
	"os"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
	"github.com/kvpipe/kvpipe/test/cluster"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(forkEnv); what != "" {
		os.Exit(forked(what))
	}
	leak.Main(cluster.Built(m))
}
