package main

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

// TestWhatIsFetchedAhead is no transfer in flight yet: it is counted by itself, at a watch too. What has ended is shown, and not counted.
func TestWhatIsFetchedAhead(t *testing.T) {
	all := []admin.Transfer{{ID: "1", State: "seeking"}, {ID: "2", State: "moving"}, {ID: "3", State: "seeking"}, {ID: "4", State: "ended"}}
	var out strings.Builder
	new(ctl).printTransfers(true)(&out, all)
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 7 || !strings.HasSuffix(lines[0], "  1 in flight") || !strings.HasPrefix(lines[2], "2 ") || !strings.HasPrefix(lines[3], "4 ") || !strings.HasPrefix(lines[4], "and 2 that wait") {
		t.Errorf("printed\n%s", out.String())
	}
	if all[1].ID != "2" {
		t.Error("what was read has changed")
	}
}
