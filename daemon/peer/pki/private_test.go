package pki

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// TestAKeyForEverybody is none to begin with, and serves once its mode is mended. A group may read it.
func TestAKeyForEverybody(t *testing.T) {
	dir := newCA(t)
	cert, key := issue(t, dir, dir, "a", time.Hour)
	for _, mode := range []os.FileMode{0o644, 0o604, 0o444} {
		chmod(t, key, mode)
		id, err := Open(filepath.Join(dir, CAFile), cert, key, "a")
		says(t, "open", err, key, "everybody can read", fmt.Sprintf("mode %04o", mode), "chmod o-r")
		if until, problem := id.Problem(); !until.IsZero() || problem == nil {
			t.Errorf("mode %04o: in use until %v, %v", mode, until, problem)
		}
		chmod(t, key, mode&^0o004)
		if err := id.Valid(); err != nil {
			t.Errorf("mode %04o after %04o: %v", mode&^0o004, mode, err)
		}
	}
}

// TestAKeyThatIsOpenedToEverybodyInUse, and one like it that is put in its place: the one that was read serves on, and people are told.
func TestAKeyThatIsOpenedToEverybodyInUse(t *testing.T) {
	dir := newCA(t)
	_, key := issue(t, dir, dir, "a", time.Hour)
	issue(t, dir, dir, "b", time.Hour)
	a, b := open(t, dir, "a"), open(t, dir, "b")
	before := serial(a)
	for _, prepare := range []func(){func() {}, func() { issue(t, dir, dir, "a", time.Hour) }} {
		prepare()
		chmod(t, key, 0o644)
		if name, err := shake(t, a, b); name != "a" || err != nil {
			t.Errorf("%q, %v", name, err)
		}
		if serial(a) != before {
			t.Error("the new key serves")
		}
		until, err := a.Problem()
		if says(t, "problem", err, key, "mode 0644", "chmod o-r"); until.IsZero() {
			t.Error("nothing is in use any more")
		}
	}
	chmod(t, key, 0o600)
	if _, err := a.Problem(); err != nil || serial(a) == before {
		t.Errorf("mended: %v", err)
	}
}

// TestACAKeyForEverybodySignsNothing: whoever read it makes nodes of its own, so nothing more is built on it. A group may share it.
func TestACAKeyForEverybodySignsNothing(t *testing.T) {
	dir := newCA(t)
	key := filepath.Join(dir, CAKeyFile)
	chmod(t, key, 0o644)
	says(t, "issue", IssueNode(dir, dir, "a", nil, time.Hour), key, "mode 0644", "chmod o-r")
	if left, err := filepath.Glob(filepath.Join(dir, "a.*")); err != nil || len(left) > 0 {
		t.Errorf("made all the same: %v %v", left, err)
	}
	chmod(t, key, 0o640)
	issue(t, dir, dir, "a", time.Hour)
}

// TestAKeyUnderAPassphrase is named as such.
func TestAKeyUnderAPassphrase(t *testing.T) {
	dir := newCA(t)
	cert, key := issue(t, dir, dir, "a", time.Hour)
	for _, text := range []string{
		"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
		"-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n",
	} {
		if err := os.WriteFile(key, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(filepath.Join(dir, CAFile), cert, key, "a")
		says(t, "encrypted", err, key, "under a passphrase", "openssl pkey")
	}
}

// TestAKeyThatIsNoFile is not waited for.
func TestAKeyThatIsNoFile(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := readPrivate(fifo)
	says(t, "a FIFO", err, fifo, "is no file")
}
