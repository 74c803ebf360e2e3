package session

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestLastMessage: a client that has room for it gets it although its time is over before it is sent, as on a node that stands still; one that
// has none is not waited for longer.
func TestLastMessage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := sys.ListenSeqpacket(path, sys.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := sys.DialSeqpacket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := ackBody(0, transfer.Cause{Reason: transfer.Quota, Text: "why"})
	next := func() []byte {
		t.Helper()
		b := make([]byte, 4096)
		_ = client.SetDeadline(time.Now().Add(time.Minute))
		n, err := client.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return b[:n]
	}
	sendLast(conn, -time.Second, ring.CtlBye, 0, body)
	if got := next(); !bytes.Equal(got, packed(ring.CtlBye, 0, body)) {
		t.Errorf("it is told %q", got)
	}
	full := 0
	for err = sys.SendNow(conn, []byte("full")); err == nil; err = sys.SendNow(conn, []byte("full")) {
		full++
	}
	sendLast(conn, -time.Second, ring.CtlBye, 0, body)
	for range full {
		if got := next(); string(got) != "full" {
			t.Errorf("%q does not fit", got)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := client.Read(make([]byte, 4096)); n > 0 || err == nil {
		t.Errorf("%d bytes more came, %v", n, err)
	}
}
