package blockcopy

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
)

// Quantum is the most bytes that are copied between two looks at stop. It
// bounds how long a cancelled copy goes on.
const Quantum = 256 << 10

// ErrStopped says that a copy ended early because it was told to.
var ErrStopped = errors.New("copy stopped")

// Run is one piece of work: Src is copied to Dst, which must have the same
// length. The memory belongs to the caller and must stay mapped until the call
// returns: it may become inaccessible, but must not be given to anything else.
type Run struct {
	Dst, Src []byte
}

// Copy copies src to dst, which must have the same length and must not overlap
// it. When either memory is not accessible, the error is a *Fault, and some
// bytes of dst may have been written. Any goroutine may call it, several at
// once.
func Copy(dst, src []byte) error {
	runs := [1]Run{{dst, src}}
	_, err := CopyRuns(runs[:], nil)
	return err
}

// CopyRuns copies runs, which must not overlap each other. It returns how many
// bytes from the beginning of the list are certainly copied; later ones may
// have been written, too. It ends early with a *Fault, which names the run,
// when memory is not accessible, and with ErrStopped soon after *stop becomes
// true; stop may be nil. It returns the length of all runs exactly when the
// error is nil. It allocates nothing unless it fails.
//
// It does not yield: a worker that copies for long is best locked to a thread
// of low priority.
func CopyRuns(runs []Run, stop *atomic.Bool) (done int64, err error) {
	return copyRuns(best, runs, stop)
}

// copyRuns is CopyRuns with the implementation k.
func copyRuns(k kernel, runs []Run, stop *atomic.Bool) (done int64, err error) {
	if err := check(runs); err != nil {
		return 0, err
	}
	if !large(runs) {
		k = portable
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	c := cursor{kernel: k, runs: runs}
	for !c.finished() {
		if stop != nil && stop.Load() {
			return done, ErrStopped
		}
		if err := c.guardedBatch(); err != nil {
			return done, err
		}
		done += int64(c.batch)
	}
	return done, nil
}

// check refuses runs whose two ends differ in length.
func check(runs []Run) error {
	for i := range runs {
		if d, s := len(runs[i].Dst), len(runs[i].Src); d != s {
			return fmt.Errorf("copy run %d: destination has %d bytes, source %d: must be equal", i, d, s)
		}
	}
	return nil
}

// minTotal is the number of bytes from which it pays to copy a list past the
// caches. A single small hand-over is read at once by its consumer, which wants
// it in the caches.
const minTotal = 32 << 10

func large(runs []Run) bool {
	total := 0
	for i := range runs {
		if total += len(runs[i].Dst); total >= minTotal {
			return true
		}
	}
	return false
}
