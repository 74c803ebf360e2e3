package daemon

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/peer/pki"
)

// TestADevelopmentCAThatEndsSoon is made anew by the daemon that finds it so, and those that run on it go on.
func TestADevelopmentCAThatEndsSoon(t *testing.T) {
	dir := t.TempDir()
	if err := pki.Init(dir, devCA, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := pki.IssueNode(dir, dir, "before", nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	open := func(node string) *pki.Identity {
		cert, key := pki.NodeFiles(dir, node)
		id, err := pki.Open(filepath.Join(dir, pki.CAFile), cert, key, node)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	before := open("before")
	for range 2 { // the first for want of a certificate, the second because it has one
		if _, err := devCertificates(dir, "a"); err != nil {
			t.Fatal(err)
		}
		if until, err := open("a").Problem(); err != nil || !until.After(renewAt()) {
			t.Errorf("until %s, %v", until, err)
		}
	}
	if _, err := before.Problem(); err != nil {
		t.Errorf("who has a certificate of before: %v", err)
	}
}

// TestAnotherCAInTheDirectory: somebody replaced CA and certificates under the daemon, without the CA's key. It uses what is good, and leaves them as they are.
func TestAnotherCAInTheDirectory(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := pki.Init(dir, devCA, devLife); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(pki.Init(other, "another CA", time.Hour), pki.IssueNode(other, dir, "a", nil, time.Hour)); err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(filepath.Join(other, pki.CAFile))
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(dir, pki.CAFile)
	if err := os.WriteFile(ca, theirs, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := devCertificates(dir, "a"); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(ca); err != nil || !bytes.Equal(now, theirs) {
		t.Errorf("the other CA's certificate was made anew with a key that is not its own (%v)", err)
	}
	cert, key := pki.NodeFiles(dir, "a")
	if _, err := pki.Open(ca, cert, key, "a"); err != nil {
		t.Error(err)
	}
	if _, err := devCertificates(dir, "b"); err == nil || !strings.Contains(err.Error(), "ca.key: not the key of the first certificate in ca.crt") {
		t.Errorf("a node without a certificate: %v", err)
	}
}

// TestACAThatNoDevelopmentDaemonMade signs for one that is given its directory, and is not made anew: who made it does so.
func TestACAThatNoDevelopmentDaemonMade(t *testing.T) {
	dir := t.TempDir()
	if err := pki.Init(dir, "kvpipe CA", time.Hour); err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(dir, pki.CAFile)
	theirs, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := devCertificates(dir, "a"); err != nil {
			t.Fatal(err)
		}
		if now, err := os.ReadFile(ca); err != nil || !bytes.Equal(now, theirs) {
			t.Errorf("it was made anew (%v)", err)
		}
		cert, key := pki.NodeFiles(dir, "a")
		if _, err := pki.Open(ca, cert, key, "a"); err != nil {
			t.Error(err)
		}
	}
}

// TestADevelopmentCAThatWasInterrupted: the first daemon was killed between the CA's two files.
func TestADevelopmentCAThatWasInterrupted(t *testing.T) {
	dir := t.TempDir()
	if err := pki.Init(dir, devCA, devLife); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, pki.CAFile)); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"a", "b"} {
		if _, err := devCertificates(dir, node); err != nil {
			t.Errorf("%s: %v", node, err)
		}
	}
}

// TestACAOnTheCommandLine takes precedence over certificates of the file, as flags do; without it these stay.
func TestACAOnTheCommandLine(t *testing.T) {
	ca := t.TempDir()
	file := config.TLS{CA: "/etc/kvpipe/ca.crt", Cert: "/etc/kvpipe/a.crt", Key: "/etc/kvpipe/a.key"}
	cert, key := pki.NodeFiles(ca, "a")
	for _, w := range []struct {
		flag string
		want config.TLS
	}{
		{"", file},
		{ca, config.TLS{CA: filepath.Join(ca, pki.CAFile), Cert: cert, Key: key}},
	} {
		c, f := settings(t, "a", w.flag)
		c.TLS = file
		if c, err := Complete(c, f, true); err != nil || c.TLS != w.want {
			t.Errorf("--ca %q: %+v, %v, want %+v", w.flag, c.TLS, err, w.want)
		}
	}
}
