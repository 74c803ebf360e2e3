package daemon

import (
	"os"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
	"github.com/kvpipe/kvpipe/test/fakenvml"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(producerEnv); what != "" {
		os.Exit(produce(what))
	}
	leak.Main(fakenvml.Built(m))
}
