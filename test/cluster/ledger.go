package cluster

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// Ledger is the file by which engines that have ends of one pipe or lookup buffer know of each other's lives, and of their daemons'.
type Ledger struct {
	t     *testing.T
	Path  string
	ended [2]uint64
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

// ledgerBytes is enough for the structs of engine/pipe.h and lookup.h.
const ledgerBytes = 256 << 10

// Ended notes that the receiver's daemon has ended, the sender's, or one that is both, before the next one is started: what it could not
// tell the other may come again, and what was in it is lost.
func (l *Ledger) Ended(receivers, senders bool) {
	l.t.Helper()
	for i, is := range []bool{receivers, senders} {
		if is {
			l.ended[i]++
		}
	}
	f, err := os.OpenFile(l.Path, os.O_WRONLY, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	b := binary.NativeEndian.AppendUint64(nil, l.ended[0])
	if _, err := f.WriteAt(binary.NativeEndian.AppendUint64(b, l.ended[1]), 0); err != nil { // the first fields of either struct
		l.t.Fatal(err)
	}
}
