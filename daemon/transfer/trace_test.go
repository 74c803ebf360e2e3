package transfer_test

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kvpipe/kvpipe/daemon/transfer/sim"
)

// TestTraces plays scripts and compares everything the machines were told and did with the golden traces in testdata.
// After a wanted change: go test ./daemon/transfer -run TestTraces -rewrite
func TestTraces(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := sim.NewScript()
		datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				words := strings.Fields(line)
				out.WriteString(s.Do(words[0], words[1:]))
			}
			if out.Len() == 0 {
				return "ok"
			}
			return out.String()
		})
	})
}
