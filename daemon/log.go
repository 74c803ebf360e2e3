package daemon

import (
	"log/slog"
	"os"

	"github.com/kvpipe/kvpipe/daemon/config"
)

type logger = *slog.Logger

// newLog writes to stderr, or to the journal, with fields, if stderr leads there and the format is text. level can be
// changed later.
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
	_ = l.UnmarshalText([]byte(s)) // Check refused others
	return l
}
