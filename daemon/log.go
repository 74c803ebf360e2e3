package daemon

import (
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/kvpipe/kvpipe/daemon/config"
)

type logger = *slog.Logger

// newLog writes to stderr, or with fields to the journal where that is what stderr leads to. level can be changed later.
func newLog(c config.Log, level *slog.LevelVar) logger {
	level.Set(logLevel(c.Level))
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(patient(slog.NewJSONHandler(os.Stderr, o)))
	}
	text := slog.NewTextHandler(os.Stderr, o)
	if inJournal() {
		return slog.New(patient(newJournalHandler(level, text)))
	}
	return slog.New(patient(text))
}

func logLevel(s string) slog.Level {
	var l slog.Level
	_ = l.UnmarshalText([]byte(s)) // Check refused what is none
	return l
}

// gcPercent lets the heap grow to 16 MiB before it is collected: what lives is small, and a collection is in the way of a hundred
// hand-overs.
const gcPercent = 400

// tune sets what the Go runtime must know: copy workers occupy processors, so there have to be two more than those; so does the
// thread of a stream while it is in the kernel, and where none is left the runtime watches its threads and wakes others all the time;
// and the collector should work harder before memory runs out.
func tune(c config.Config, cpus int) {
	n := c.Advance.GoMaxProcs
	if n == 0 {
		n = max(cpus, c.Local.CopyWorkers+2) + c.TCP.Streams
	}
	runtime.GOMAXPROCS(n)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(-1) // a collection now would take what warm has for what lives, and the next come at several times as much
		warm()
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" && c.Advance.MemoryLimit > 0 {
		debug.SetMemoryLimit(int64(c.Advance.MemoryLimit))
	}
}

// warm has the kernel give the heap its pages now, instead of one by one while hand-overs wait for them. A heap of that size is
// never given back.
func warm() {
	b := make([]byte, 12<<20)
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	// The next collection takes b. To wait for one here would never end for threads of a real-time policy on one CPU.
}
