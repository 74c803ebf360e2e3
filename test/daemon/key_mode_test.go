package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/peer/pki"
)

// TestAKeyForEverybody is refused by the check and by the daemon, which serves its own node until the mode is mended; one that is opened in use serves on.
// All who are asked say which file it is, and what to do.
func TestAKeyForEverybody(t *testing.T) {
	c := newCluster(t)
	for _, n := range []string{"a", "b"} {
		ctl(t, "", "certs", "node", n, "--ca", c.ca)
	}
	_, key := pki.NodeFiles(c.ca, "a")
	chmod := func(path string, mode os.FileMode) {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	told := func(who, out string) {
		t.Helper()
		if !strings.Contains(out, key) || !strings.Contains(out, "(mode 0644): chmod o-r") {
			t.Errorf("%s:\n%s", who, out)
		}
	}
	chmod(key, 0o644)
	out, err := check(t, c.config("a", ""))
	if told("--check-config", out); err == nil {
		t.Error("--check-config finds nothing wrong")
	}
	b := c.start("b", "")
	a := c.start("a", "[peers.nodes]\nb = \""+b.attr("listen")+"\"\n")
	told("the log", a.await("until its certificate files are good"))
	bench := func() (string, error) {
		return tryCtl(t, c.path("a.m"), "bench", "b", "--seconds", "0.001", "--sizes", "4096")
	}
	out, err = bench()
	if told("a peer", out); err == nil {
		t.Error("a peer is reached")
	}
	told("status", ctl(t, c.path("a.m"), "status"))
	out, _ = tryCtl(t, c.path("a.m"), "doctor")
	told("doctor", out)
	chmod(key, 0o640)
	if out, err := check(t, c.config("a", "")); err != nil {
		t.Errorf("readable for a group: %v\n%s", err, out)
	}
	if out, err := bench(); err != nil {
		t.Errorf("readable for a group: %v\n%s", err, out)
	}
	chmod(key, 0o644)
	told("status", ctl(t, c.path("a.m"), "status"))
	_ = c.handshake(a.attr("listen"))
	a.signal(syscall.SIGHUP)
	told("a reload", a.await("reload: the certificate stays as it was"))
	a.stop()
	b.stop()

	key = filepath.Join(c.ca, pki.CAKeyFile)
	chmod(key, 0o644)
	out, err = tryCtl(t, "", "certs", "node", "x", "--ca", c.ca)
	if told("certs node", out); err == nil {
		t.Error("a CA's key that everybody can read signs")
	}
}
