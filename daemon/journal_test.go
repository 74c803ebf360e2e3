package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/journal"
)

// entry is what the journal was sent.
type entry struct {
	message  string
	priority journal.Priority
	fields   map[string]string
}

func TestJournal(t *testing.T) {
	var got []entry
	var spare bytes.Buffer
	var level slog.LevelVar
	h := newJournalHandler(&level, slog.NewTextHandler(&spare, nil))
	fails := false
	h.send = func(message string, p journal.Priority, fields map[string]string) error {
		if fails {
			return errors.New("no journal")
		}
		got = append(got, entry{message, p, fields})
		return nil
	}
	log := slog.New(h)
	log.With("peer", "node b").WithGroup("of").Warn("take failed", "session", uint64(7), slog.Group("x", "trace.id", "0af7"))
	log.Info("ready")
	log.Error("broken")
	log.Debug("not at this level")
	level.Set(slog.LevelDebug)
	log.Debug("at this one")
	want := []entry{
		{`take failed peer="node b" of.session=7 of.x.trace.id=0af7`, journal.PriWarning, map[string]string{"KVPIPE_PEER": "node b", "KVPIPE_OF_SESSION": "7", "KVPIPE_OF_X_TRACE_ID": "0af7"}},
		{"ready", journal.PriInfo, nil},
		{"broken", journal.PriErr, nil},
		{"at this one", journal.PriDebug, nil},
	}
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		g := got[i]
		if g.message != w.message || g.priority != w.priority {
			t.Errorf("entry %d: %d %q, want %d %q", i, g.priority, g.message, w.priority, w.message)
		}
		if g.fields["SYSLOG_IDENTIFIER"] != "kvpiped" || len(g.fields) != len(w.fields)+1 {
			t.Errorf("entry %d has fields %v", i, g.fields)
		}
		for k, v := range w.fields {
			if g.fields[k] != v {
				t.Errorf("entry %d: %s is %q, want %q", i, k, g.fields[k], v)
			}
		}
	}
	fails = true
	log.With("peer", "c").Info("said all the same")
	if text := spare.String(); !strings.Contains(text, `msg="said all the same" peer=c`) {
		t.Errorf("without a journal: %q", text)
	}
}
