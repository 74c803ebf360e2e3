package chaos

import (
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
	"github.com/kvpipe/kvpipe/test/cluster"
	"github.com/kvpipe/kvpipe/test/fakenvml"
)

func TestMain(m *testing.M) { leak.Main(fakenvml.Built(cluster.Built(m))) }
