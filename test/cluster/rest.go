package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

// Rest is what each daemon, by its pid, had when it was first looked at.
type Rest map[int]holdings

// holdings is what a daemon has: by its own word, and by the kernel's.
type holdings struct {
	counts   map[string]int
	pinned   uint64
	files    int
	mappings int
}

func look(n *Node) (holdings, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var s admin.Status
	if err := n.Ctl.Get(ctx, "status", nil, &s); err != nil {
		return holdings{}, err
	}
	h := holdings{counts: s.Counts, pinned: s.Pinned}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.Cmd.Process.Pid))
	if err != nil {
		return h, err
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", n.Cmd.Process.Pid))
	if err != nil {
		return h, err
	}
	h.files, h.mappings = len(files), strings.Count(string(maps), "memfd:")
	return h, nil
}

// idle says what the daemon still has that it should not, with that many sessions at rest, each with one region.
func (h holdings) idle(sessions int) (left []string) {
	for what, n := range h.counts {
		want := 0
		switch what {
		case "sessions", "regions":
			want = sessions
		case "engines", "peers", "peers_up":
			continue
		}
		if n != want {
			left = append(left, fmt.Sprintf("%s %d, want %d", what, n, want))
		}
	}
	if want := uint64(sessions) * regionBytes; h.pinned != want {
		left = append(left, fmt.Sprintf("%d bytes registered, want %d", h.pinned, want))
	}
	return left
}

// regionBytes is what an engine registers: 2 layers of 256 blocks of 16 KiB.
const regionBytes = 2 * 256 * 16 << 10

// Clean waits until the daemon has nothing but its sessions, and not more files and mappings than it had the first time at rest.
func Clean(t *testing.T, n *Node, sessions int, rest Rest) {
	t.Helper()
	var h holdings
	var left []string
	Eventually(t, "daemon "+n.Name+" has let go of everything", func() bool {
		var err error
		if h, err = look(n); err != nil {
			t.Fatal(err)
		}
		left = h.idle(sessions)
		first, known := rest[n.Cmd.Process.Pid]
		if known && h.mappings > first.mappings {
			left = append(left, fmt.Sprintf("%d mappings, at first %d", h.mappings, first.mappings))
		}
		// A link more or less is open at a time; more than those are a leak.
		if known && h.files > first.files+spareFiles {
			left = append(left, fmt.Sprintf("%d files, at first %d", h.files, first.files))
		}
		return len(left) == 0
	}, func() string { return strings.Join(left, "; ") })
	if _, known := rest[n.Cmd.Process.Pid]; !known {
		rest[n.Cmd.Process.Pid] = h
	}
}

// spareFiles are those of a channel and its links, which may be opened after the daemon was first looked at.
const spareFiles = 8
