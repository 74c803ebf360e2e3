package daemon

import (
	"os"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(producerEnv); what != "" {
		os.Exit(produce(what))
	}
	leak.Main(m)
}
