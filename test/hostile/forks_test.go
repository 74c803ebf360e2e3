package hostile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/test/cluster"
)

// The ways in which a process and its child come apart, after both have used one session at once.
const (
	parentDies = "parent dies" // without a word; its child goes on
	childDies  = "child dies"  // and its parent goes on, and closes
	childEnds  = "child ends"  // the session, with BYE; its parent goes on
	childMoves = "child moves" // to a connection of its own, with the session's secret; its parent goes on
	childHello = "child hello" // on a connection whose opener is gone
)

var apart = []string{parentDies, childDies, childEnds, childMoves, childHello}

// forks is a process that forks: two processes hold one control socket, the same rings and eventfds and the same memory, and use them at
// once. Its session ends with a reason, whatever the child still holds of it.
func forks(t *testing.T, n *cluster.Node, r *rand.Rand) {
	way := apart[r.IntN(len(apart))]
	ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
	defer cancel()
	// Files, and not pipes of exec's: the child has them too, and ends when hold is closed.
	in, hold, err := os.Pipe()
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = hold.Close() }()
	said, out, err := os.Pipe()
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = said.Close() }()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%d,%s", forkEnv, way, r.Uint64(), n.Socket))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, os.Stderr
	err = cmd.Start()
	_, _ = in.Close(), out.Close()
	if err == nil {
		err = cmd.Wait() // the parent waits for nobody
	}
	if err != nil {
		t.Errorf("%s: parent: %v", way, err)
		return
	}
	if _, err := hold.Write([]byte("\n")); err != nil && way == childHello {
		t.Errorf("%s: %v", way, err)
	}
	_ = said.SetReadDeadline(time.Now().Add(cluster.Patience))
	words := map[string]string{}
	for s := bufio.NewScanner(said); words["child"] == "" && words["full"] == "" && s.Scan(); {
		word, rest, _ := strings.Cut(s.Text(), " ")
		words[word] = rest
	}
	if words["full"] != "" {
		return // the daemon had no place, which is its right
	}
	reason, err := strconv.Atoi(words["child"])
	switch {
	case words["child"] == "dies":
	case err != nil || reason == 0 || way == childHello && !late(transfer.Reason(reason)):
		t.Errorf("%s: the session does not end as it should: they say %q", way, words)
	}
	// The child holds all that the session had, and the daemon nothing; the engine may come back.
	if id := words["session"]; id != "" {
		cluster.Eventually(t, way+": session "+id+" is gone", func() bool { return !slices.Contains(sessions(t, n), id) })
	}
	if c := join(t, n, sessiontest.Options{Engine: "forker", SQ: 16, CQ: 16, Records: 1 << 16}); c != nil {
		if err := c.Ping(); err != nil {
			t.Errorf("%s: the next one of its name: %v", way, err)
		}
		_ = c.Close()
	}
	_ = hold.Close()
	if _, err := io.Copy(io.Discard, said); err != nil {
		t.Errorf("%s: the child does not end: %v", way, err)
	}
}

// sessions lists the ids of the daemon's sessions.
func sessions(t *testing.T, n *cluster.Node) (ids []string) {
	ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
	defer cancel()
	var all []admin.Session
	if err := n.Ctl.Get(ctx, "sessions", nil, &all); err != nil {
		t.Errorf("sessions: %v", err)
	}
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids
}

// late says whether that is how a HELLO is answered whose process has ended. That it is not, 0xffff, is for one that comes after the
// daemon gave up waiting for it.
func late(reason transfer.Reason) bool { return reason == transfer.PeerGone || reason == 0xffff }
