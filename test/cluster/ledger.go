package cluster

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// Ledger is the file by which engines that have ends of one pipe know of each other's lives, and of the receiver's daemon's.
type Ledger struct {
	t     *testing.T
	Path  string
	ended uint64
}

// NewLedger makes an empty one.
func NewLedger(t *testing.T) *Ledger {
	t.Helper()
	l := &Ledger{t: t, Path: filepath.Join(t.TempDir(), "ledger")}
	if err := os.WriteFile(l.Path, make([]byte, ledgerBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

// ledgerBytes is enough for the struct of engine/pipe.h.
const ledgerBytes = 64 << 10

// Ended notes that the receiver's daemon has ended, before the next one is started: what it could not tell the sender's may come again.
func (l *Ledger) Ended() {
	l.t.Helper()
	l.ended++
	f, err := os.OpenFile(l.Path, os.O_WRONLY, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(binary.NativeEndian.AppendUint64(nil, l.ended), 0); err != nil { // the struct's first field
		l.t.Fatal(err)
	}
}
