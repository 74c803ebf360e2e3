package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
)

// inJournal reports whether stderr is the journal. The daemon then uses the journal's own protocol, with fields and
// priorities.
func inJournal() bool {
	is, err := journal.StderrIsJournalStream()
	return err == nil && is
}

// journalHandler writes records to the journal. People read the message with its attributes. Each attribute is a field,
// too, named KVPIPE_ and its key: KVPIPE_PEER, KVPIPE_SESSION, KVPIPE_TRACE and so on. What the journal does not take
// goes to spare.
type journalHandler struct {
	level  slog.Leveler
	spare  slog.Handler
	send   func(message string, p journal.Priority, fields map[string]string) error
	fields map[string]string // of WithAttrs
	prefix string            // of WithGroup, in the form of field names
	shared *sheet
	text   slog.Handler // writes attributes to shared
}

// sheet is where the text of a record is put together, one record at a time.
type sheet struct {
	sync.Mutex
	bytes.Buffer
}

func newJournalHandler(level slog.Leveler, spare slog.Handler) *journalHandler {
	h := &journalHandler{level: level, spare: spare, send: journal.Send, shared: new(sheet)}
	h.text = slog.NewTextHandler(h.shared, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
			return slog.Attr{} // the journal has them
		}
		return a
	}})
	return h
}

func (h *journalHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	fields := maps.Clone(h.fields)
	if fields == nil {
		fields = map[string]string{}
	}
	fields["SYSLOG_IDENTIFIER"] = "kvpiped"
	r.Attrs(func(a slog.Attr) bool {
		addField(fields, h.prefix, a)
		return true
	})
	h.shared.Lock()
	h.shared.Reset()
	err := h.text.Handle(ctx, r)
	message := strings.TrimSpace(r.Message + " " + h.shared.String())
	h.shared.Unlock()
	if err == nil {
		err = h.send(message, priority(r.Level), fields)
	}
	if err != nil {
		return h.spare.Handle(ctx, r)
	}
	return nil
}

func (h *journalHandler) WithAttrs(as []slog.Attr) slog.Handler {
	c := *h
	c.fields = maps.Clone(h.fields)
	if c.fields == nil {
		c.fields = map[string]string{}
	}
	for _, a := range as {
		addField(c.fields, h.prefix, a)
	}
	c.text, c.spare = h.text.WithAttrs(as), h.spare.WithAttrs(as)
	return &c
}

func (h *journalHandler) WithGroup(name string) slog.Handler {
	c := *h
	c.prefix += fieldName(name) + "_"
	c.text, c.spare = h.text.WithGroup(name), h.spare.WithGroup(name)
	return &c
}

// addField adds an attribute, or those of a group.
func addField(fields map[string]string, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		for _, inner := range v.Group() {
			addField(fields, prefix+fieldName(a.Key)+"_", inner)
		}
		return
	}
	fields["KVPIPE_"+prefix+fieldName(a.Key)] = v.String()
}

// fieldName returns a key as the journal has it: capital letters, digits and underscores.
func fieldName(key string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z' || r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
}

func priority(l slog.Level) journal.Priority {
	switch {
	case l >= slog.LevelError:
		return journal.PriErr
	case l >= slog.LevelWarn:
		return journal.PriWarning
	case l >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}

// Failed tells the journal, if stderr is the journal, why a daemon does not run or has ended. After false, the caller
// writes to stderr.
func Failed(err error) bool {
	return inJournal() && journal.Send(err.Error(), journal.PriErr, map[string]string{"SYSLOG_IDENTIFIER": "kvpiped"}) == nil
}
