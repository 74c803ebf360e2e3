package plan_test

import (
	"flag"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

// TestMain asks for more cases than usual, since many dimensions meet in one plan; -rapid.checks has the last word.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "1000"); err != nil {
		panic(err)
	}
	leak.Main(m)
}
