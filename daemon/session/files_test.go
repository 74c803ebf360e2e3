package session_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestFilesOfASession: the daemon has 4 for it, which is what operating.md and kvpipectl doctor say, and none for its regions.
func TestFilesOfASession(t *testing.T) {
	const sessions, client = 5, 5 // in this process a client has its connection, two rings and two eventfds
	n := start(t, nil)
	first := n.dial(sessiontest.Options{Engine: "first"})
	noErr(t, first.Ping()) // what is opened once is there, and what was only passed on is closed
	before := descriptors(t)
	for range sessions {
		c := n.dial(sessiontest.Options{Role: transfer.Endpoint})
		_, _, err := c.Alloc(8192)
		noErr(t, err)
		noErr(t, c.Ping())
	}
	if got := descriptors(t) - before - sessions*client; got != 4*sessions {
		t.Errorf("%d sessions take %d files, want 4 each", sessions, got)
	}
}
