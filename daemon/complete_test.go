package daemon

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/pki"
)

// TestADevelopmentCAThatEndsSoon is made anew by the daemon that finds it so, and those that run on it go on.
func TestADevelopmentCAThatEndsSoon(t *testing.T) {
	dir := t.TempDir()
	if err := pki.Init(dir, "test CA", time.Hour); err != nil {
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
