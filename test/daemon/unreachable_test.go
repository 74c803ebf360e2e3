package daemon

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/peer/pki"
)

// TestUnreachable: a daemon that serves its own node alone, because its port is another's and its key is of another certificate, shows it
// wherever somebody looks, and is healthy.
func TestUnreachable(t *testing.T) {
	c := newCluster(t)
	ctl(t, "", "certs", "node", "a", "--ca", c.ca)
	ctl(t, "", "certs", "node", "b", "--ca", c.ca)
	_, key := pki.NodeFiles(c.ca, "a")
	_, others := pki.NodeFiles(c.ca, "b")
	good := exchange(t, key, others)
	busy := busyPort(t)
	p := start(t, "--config", c.config("a", ""), "--listen", busy, "--metrics", "127.0.0.1:0")
	if line := p.await("msg=ready"); !strings.Contains(line, "unreachable=[listen]") {
		t.Errorf("it says %s", line)
	}
	at := c.path("a.m")
	s := ask[admin.Status](t, at, "status")
	if s.Certificate == nil || !s.Certificate.Until.IsZero() || !strings.Contains(s.Certificate.Problem, "private key does not match") || len(s.Warnings) != 2 {
		t.Errorf("status: %+v, %+v", s, s.Certificate)
	}
	if json := ctl(t, at, "status", "--json"); strings.Contains(json, `"until"`) || strings.Contains(json, "0001") {
		t.Errorf("status --json:\n%s", json)
	}
	if text := ctl(t, at, "status"); strings.Contains(text, "0001") || !strings.Contains(text, "a.crt, not usable: ") {
		t.Errorf("status:\n%s", text)
	}
	if got := fetch(t, "http://"+s.Metrics+"/health"); got != "ok\n" {
		t.Errorf("health: %q", got)
	}
	shows(t, s.Metrics, "kvpipe_certificate_expiry_timestamp_seconds 0", `kvpipe_warnings{kind="listen"} 1`, `kvpipe_warnings{kind="certificate"} 1`, `kvpipe_warnings{kind="nics"} 0`)

	if err := os.WriteFile(key, good, 0o600); err != nil {
		t.Fatal(err)
	}
	s = ask[admin.Status](t, at, "status")
	if s.Certificate.Problem != "" || !s.Certificate.Until.After(time.Now()) || len(s.Warnings) != 1 {
		t.Errorf("with its key: %+v, %+v", s, s.Certificate)
	}
	shows(t, s.Metrics, `kvpipe_warnings{kind="listen"} 1`, `kvpipe_warnings{kind="certificate"} 0`)
	p.stop()
}

// TestReachable: what is well is not told.
func TestReachable(t *testing.T) {
	p := dev(t, tempDir(t), "a")
	if line := p.await("msg=ready"); strings.Contains(line, "unreachable") {
		t.Errorf("it says %s", line)
	}
	p.stop()
}

// exchange gives a file what another has, and returns what it had.
func exchange(t *testing.T, to, from string) []byte {
	t.Helper()
	was, err := os.ReadFile(to)
	now, none := os.ReadFile(from)
	if err := errors.Join(err, none, os.WriteFile(to, now, fs.FileMode(0o600))); err != nil {
		t.Fatal(err)
	}
	return was
}

// shows waits for a page with these lines: pages that are asked for one upon another may be the same.
func shows(t *testing.T, metrics string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		eventually(t, "the page has "+l, func() bool { return strings.Contains(fetch(t, "http://"+metrics+"/metrics"), "\n"+l+"\n") })
	}
}
