package session_test

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// silence connects and says nothing.
func silence(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	c, err := sys.DialSeqpacket(t.Context(), path)
	noErr(t, err)
	t.Cleanup(func() { _ = c.Close() })
	noErr(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

// shownOut waits for the daemon's BYE and the end of the connection.
func shownOut(t *testing.T, c *net.UnixConn, reason transfer.Reason, says string) {
	t.Helper()
	b := make([]byte, 4096)
	n, err := c.Read(b)
	noErr(t, err)
	var h ring.Ctl
	body, err := ring.Decode(b[:n], &h, "message")
	noErr(t, err)
	var a ring.Ack
	text, err := ring.Decode(body, &a, "bye")
	noErr(t, err)
	if h.Type != ring.CtlBye || a.Reason != uint32(reason) || !strings.Contains(string(text), says) {
		t.Errorf("message %d with reason %d: %q; want BYE with %d that says %q", h.Type, a.Reason, text, reason, says)
	}
	if _, err := c.Read(b); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection is not closed: %v", err)
	}
}

// TestCrowd: connections that say nothing are no sessions, keep nobody from one, and do not use up the daemon's descriptors.
func TestCrowd(t *testing.T) {
	n := start(t, func(c *session.Config) { c.Limits.SessionsPerUID = 1 })
	crowd := make([]*net.UnixConn, 300)
	for i := range crowd {
		crowd[i] = silence(t, n.path)
	}
	c := n.dial(sessiontest.Options{}) // all of the others were accepted before it
	if u := n.Usage(); u.Sessions != 1 || u.OneUser != 1 || len(n.Sessions()) != 1 {
		t.Errorf("%d sessions are counted, %d of one user, and %d shown", u.Sessions, u.OneUser, len(n.Sessions()))
	}
	n.refused(sessiontest.Options{Engine: "f"}, transfer.Quota, "has 1 sessions", "sessions_per_uid = 1")
	for _, c := range crowd[:300-64] {
		shownOut(t, c, transfer.Quota, "a user can have 64")
	}
	noErr(t, c.Close())
	late, err := sessiontest.Hello(crowd[299], sessiontest.Options{Engine: "e"})
	noErr(t, err)
	noErr(t, late.Ping())
	noErr(t, late.Close())
	if u := n.Usage(); u.Sessions != 0 || u.OneUser != 0 {
		t.Errorf("%d sessions are counted, %d of one user: there is none", u.Sessions, u.OneUser)
	}
}

// TestTheTimeToSayHello: it ends for who says nothing, and not for who has said it when the daemon is late itself.
func TestTheTimeToSayHello(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := sys.ListenSeqpacket(path, sys.ListenOptions{})
	noErr(t, err)
	silent, said := silence(t, path), silence(t, path)
	h := ring.Hello{ABIMin: ring.ABIMin, ABIMax: ring.ABI, Role: ring.RoleEndpoint}
	copy(h.Engine[:], "e")
	hello := ring.Append(nil, &h)
	noErr(t, sys.Send(said, append(ring.Append(nil, &ring.Ctl{Magic: ring.Magic, Type: ring.CtlHello, Len: uint32(len(hello))}), hello...)))

	v, err := session.New(session.Config{Node: "n0", Epoch: 7, Events: func(transfer.Event) {}, Greeting: 1}) // over when it is accepted
	noErr(t, err)
	served := make(chan error, 1)
	go func() { served <- v.Serve(l) }()
	shownOut(t, silent, transfer.Timeout, "no HELLO came within 1ns")
	b := make([]byte, 4096)
	k, fds, err := sys.Recv(said, b, 4)
	noErr(t, err)
	sys.CloseAll(fds)
	var answer ring.Ctl
	if _, err := ring.Decode(b[:k], &answer, "answer"); err != nil || answer.Type != ring.CtlWelcome {
		t.Errorf("HELLO is answered by %+v, %v", answer, err)
	}
	noErr(t, v.Close())
	noErr(t, <-served)
}
