package house

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestHeardTexts: where the Python package tells cases apart by the words of an error, whose code several have, those who say it say so.
func TestHeardTexts(t *testing.T) {
	for _, c := range []struct {
		file, hears string
		says        []string
		said        []string
	}{
		{"take.py", `": layer not in place yet after "`, []string{`"layer not in place yet"`, `"operation %llu: %s after %s: `}, []string{"capi/wait_op.c"}},
		{"_end.py", `"within [0-9.]+ m?s:"`, []string{` within %s: `}, []string{"capi/put.c", "capi/recv.c", "capi/pipe.c"}},
		{"_end.py", `"the daemon does not take submissions"`, []string{`"the daemon does not take submissions"`}, []string{"capi/end_ops.c"}},
		{"pipe.py", `'"(\.\.\.)? was closed by its sender(, and everything in it was received| after \d+ items?)$'`,
			[]string{`"%s was closed by its sender, and everything in it was received"`, `"%s was closed by its sender after %s"`}, []string{"daemon/transfer/linger.go"}},
		{"vllm/session.py", `startswith("no daemon at ")`, []string{`"no daemon at %s`}, []string{"capi/dial.c"}},
	} {
		if !strings.Contains(read(t, filepath.Join("../../python/kvpipe", c.file)), c.hears) {
			t.Errorf("python/kvpipe/%s does not look for %s", c.file, c.hears)
		}
		for _, file := range c.said {
			text := read(t, filepath.Join("../..", file))
			for _, says := range c.says {
				if !strings.Contains(text, says) {
					t.Errorf("%s does not say %s, for which python/kvpipe/%s looks", file, says, c.file)
				}
			}
			if !strings.Contains(text, "python/kvpipe/"+c.file) {
				t.Errorf("%s does not say that python/kvpipe/%s looks for %s", file, c.file, c.says)
			}
		}
	}
}
