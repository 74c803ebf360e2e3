package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// stallingHandler writes nothing while it is held.
type stallingHandler struct {
	slog.Handler
	held chan struct{}
}

func (h stallingHandler) Handle(ctx context.Context, r slog.Record) error {
	<-h.held
	return h.Handler.Handle(ctx, r)
}

func (h stallingHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return stallingHandler{h.Handler.WithAttrs(as), h.held}
}

// TestALogThatHangs keeps nobody for long, and says how much is missing when it goes on.
func TestALogThatHangs(t *testing.T) {
	book, held := new(logbook), make(chan struct{})
	h := patient(stallingHandler{slog.NewTextHandler(book, nil), held})
	h.queue.wait, h.queue.room = 50*time.Millisecond, 2
	log := slog.New(h).With("peer", "b")
	log.Info("first")
	log.Info("second")
	began := time.Now()
	for range 2000 { // one after the other would take 100 s to give up
		log.Info("missing")
	}
	if took := time.Since(began); took > patience {
		t.Errorf("2000 records took %v", took)
	}
	close(held)
	eventually(t, "the log goes on", func() bool { return strings.Contains(book.String(), "second") })
	h.queue.wait = patience
	log.Info("last")
	got := book.String()
	for _, want := range []string{"msg=first peer=b", "records are missing here\" peer=b records=2000", "msg=last peer=b"} {
		if !strings.Contains(got, want) {
			t.Errorf("the log lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "msg=missing") {
		t.Errorf("what was given up is written:\n%s", got)
	}
}

// TestALogThatIsSlow keeps nobody for long either, and has all records in their order in the end: that the daemon is ready is one of them.
func TestALogThatIsSlow(t *testing.T) {
	book, held := new(logbook), make(chan struct{})
	h := patient(stallingHandler{slog.NewTextHandler(book, nil), held})
	h.queue.wait = 10 * time.Millisecond
	log := slog.New(h)
	var want []string
	for i := range 100 {
		log.Info("record", "n", i)
		want = append(want, fmt.Sprintf("msg=record n=%d", i))
	}
	close(held)
	h.queue.wait = patience
	log.Info("last")
	eventually(t, "the log has everything", func() bool { return strings.Contains(book.String(), "msg=last") })
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(book.String()), "\n") {
		got = append(got, line[strings.Index(line, "msg="):])
	}
	if want = append(want, "msg=last"); !slices.Equal(got, want) {
		t.Errorf("the log has\n%s", strings.Join(got, "\n"))
	}
}
