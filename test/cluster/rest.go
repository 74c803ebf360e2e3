package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

// Rest is the least that each daemon, by its pid, was seen to have at rest of its own: without what its sessions and its peers cost it.
type Rest map[int]own

// own is what a daemon has of the kernel's for itself.
type own struct{ files, mappings int }

// holdings is what a daemon has: by its own word, and by the kernel's.
type holdings struct {
	kept
	counts map[string]int
	pipes  []admin.Pipe
	pinned uint64
	wires  int // connections that its channels and their links are, and what it listens at
}

func look(n *Node) (holdings, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var s struct { // also of a daemon that counts more than this one does
		Counts map[string]int `json:"counts"`
		Pinned uint64         `json:"pinned_bytes"`
	}
	if err := n.Ctl.Get(ctx, "status", nil, &s); err != nil {
		return holdings{}, err
	}
	h := holdings{counts: s.Counts, pinned: s.Pinned, wires: 1}
	var transfers []admin.Transfer
	if err := n.Ctl.Get(ctx, "transfers", nil, &transfers); err != nil {
		return h, err
	}
	for _, t := range transfers {
		if t.State == "ended" { // and is remembered, for a while
			h.counts["ended"]++
		}
	}
	if err := n.Ctl.Get(ctx, "pipes", nil, &h.pipes); err != nil {
		return h, err
	}
	var peers []admin.Peer
	if err := n.Ctl.Get(ctx, "peers", nil, &peers); err != nil {
		return h, err
	}
	for _, p := range peers {
		if p.State == "up" {
			h.wires += 1 + p.Links
		}
	}
	var err error
	h.kept, err = keeps(n.Cmd.Process.Pid)
	return h, err
}

// What a session costs the daemon, by daemon/session: its connection, the eventfds of submissions and of completions, and the pidfd of its
// process; the mappings of its two rings (their descriptors are closed once the client has them). An end of a pipe or lookup buffer is a
// session. A region costs its mapping: the descriptor is closed once it is mapped.
const (
	sessionFiles    = 4
	sessionMappings = 2
	regionMappings  = 1
)

// own is what is left when all is taken off that sessions and regions account for.
func (h holdings) own() own {
	return own{h.files - sessionFiles*h.counts["sessions"], h.mappings - sessionMappings*h.counts["sessions"] - regionMappings*h.counts["regions"]}
}

// leaked says what a daemon at rest has more than it had at rest before.
func (h holdings) leaked(least own) (more []string) {
	now := h.own()
	if now.files > least.files {
		more = append(more, fmt.Sprintf("%d files beside those of sessions and peers, before %d", now.files, least.files))
	}
	if now.mappings > least.mappings {
		more = append(more, fmt.Sprintf("%d mappings beside those of sessions and regions, before %d", now.mappings, least.mappings))
	}
	return more
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
	if h.tcp > h.wires {
		left = append(left, fmt.Sprintf("%d connections with peers, want %d", h.tcp, h.wires))
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
	arenaBytes = 2 * (2<<20 + 2<<20/4 + 64<<10)
	maxAhead   = 64
)

// Clean waits until the daemon has nothing but its sessions, and not more files and mappings than it had before at rest.
func Clean(t *testing.T, n *Node, sessions int, rest Rest) {
	t.Helper()
	Drained(t, n, sessions, 0, rest)
}

// Drained waits until the daemon has nothing but its sessions and open ends of pipes and lookup buffers, with nothing in them, and not more
// files and mappings beside these than it had before at rest.
func Drained(t *testing.T, n *Node, sessions, ends int, rest Rest) {
	t.Helper()
	pid := n.Cmd.Process.Pid
	least, known := rest[pid]
	h := settle(t, n, func(h holdings) []string {
		left := h.idle(sessions, ends)
		if known {
			left = append(left, h.leaked(least)...)
		}
		return left
	})
	// Something may have been on its way at one moment, to open or to close; not at two.
	again, err := look(n)
	if err != nil {
		t.Fatal(err)
	}
	now, later := h.own(), again.own()
	now.files, now.mappings = max(now.files, later.files), max(now.mappings, later.mappings)
	if known { // what was about to go is gone by now
		now.files, now.mappings = min(now.files, least.files), min(now.mappings, least.mappings)
	}
	rest[pid] = now
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
