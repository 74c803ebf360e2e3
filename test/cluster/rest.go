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
	pipes    []admin.Pipe
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
	if err := n.Ctl.Get(ctx, "pipes", nil, &h.pipes); err != nil {
		return h, err
	}
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

// idle says what the daemon still has that it should not, with that many sessions at rest, each with one region, and that many open ends of
// pipes and lookup buffers in which nothing is.
func (h holdings) idle(sessions, ends int) (left []string) {
	for what, n := range h.counts {
		least, most := 0, 0
		switch what {
		case "sessions":
			least, most = sessions+ends, sessions+ends
		case "regions": // a receiving end has none as long as nothing came that has bytes
			least, most = sessions, sessions+ends
		case "seeking", "holds_seeking":
			most = ends * maxAhead
		case "engines", "peers", "peers_up":
			continue
		}
		if n < least || n > most {
			left = append(left, fmt.Sprintf("%s %d, want %d to %d", what, n, least, most))
		}
	}
	least := uint64(sessions) * regionBytes
	if most := least + uint64(ends)*arenaBytes; h.pinned < least || h.pinned > most {
		left = append(left, fmt.Sprintf("%d bytes registered, want %d to %d", h.pinned, least, most))
	}
	for _, p := range h.pipes { // a name stays for a while after its last end
		if p.Items > 0 || p.Bytes > 0 || p.Ends > ends || p.Waiting > ends*maxAhead || ends == 0 && p.State != "waiting" {
			left = append(left, fmt.Sprintf("%+v, want %d ends", p, ends))
		}
	}
	return left
}

// regionBytes is what an engine registers: 2 layers of 256 blocks of 16 KiB.
const regionBytes = 2 * 256 * 16 << 10

// Of the end of a pipe or lookup buffer, by engine/pipe.h and lookup.h: the memory of a receiving one, at most, and what it asks for ahead.
const (
	arenaBytes = 2 * (2<<20 + 2<<20/8 + 64<<10)
	maxAhead   = 64
)

// Clean waits until the daemon has nothing but its sessions, and not more files and mappings than it had the first time at rest.
func Clean(t *testing.T, n *Node, sessions int, rest Rest) {
	t.Helper()
	pid := n.Cmd.Process.Pid
	h := settle(t, n, func(h holdings) []string {
		left := h.idle(sessions, 0)
		first, known := rest[pid]
		if known && h.mappings > first.mappings {
			left = append(left, fmt.Sprintf("%d mappings, at first %d", h.mappings, first.mappings))
		}
		// A link more or less is open at a time; more than those are a leak.
		if known && h.files > first.files+spareFiles {
			left = append(left, fmt.Sprintf("%d files, at first %d", h.files, first.files))
		}
		return left
	})
	if _, known := rest[pid]; !known {
		rest[pid] = h
	}
}

// Drained waits until the daemon has nothing but its sessions and open ends of pipes and lookup buffers, with nothing in them.
func Drained(t *testing.T, n *Node, sessions, ends int) {
	t.Helper()
	settle(t, n, func(h holdings) []string { return h.idle(sessions, ends) })
}

// settle waits until the daemon has nothing that what finds left, and returns what it has.
func settle(t *testing.T, n *Node, what func(holdings) []string) (h holdings) {
	t.Helper()
	var left []string
	Eventually(t, "daemon "+n.Name+" has let go of everything", func() bool {
		var err error
		if h, err = look(n); err != nil {
			t.Fatal(err)
		}
		left = what(h)
		return len(left) == 0
	}, func() string { return strings.Join(left, "; ") })
	return h
}

// spareFiles are those of a channel and its links, which may be opened after the daemon was first looked at.
const spareFiles = 8
