package driver

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestNewsOfClientsDoNotFillTheLog, as those of one whose instance is replaced again and again, or whose leases are cut; what else needs attention is
// always told.
func TestNewsOfClientsDoNotFillTheLog(t *testing.T) {
	var log bytes.Buffer
	d := New(Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 5000 {
		d.execute(transfer.Log{Level: int(slog.LevelInfo), Text: "replaced", Attrs: []any{"engine", "e"}})
		d.execute(transfer.Log{Level: int(slog.LevelWarn), Text: "quarantined"})
		d.execute(transfer.Log{Level: int(slog.LevelWarn), Text: "cut", Often: true})
	}
	if told := strings.Count(log.String(), "msg=replaced engine=e"); told < 100 || told > 1000 {
		t.Errorf("of 5000 that are normal the log has %d, want some", told)
	}
	if told := strings.Count(log.String(), "level=WARN msg=cut"); told < 100 || told > 1000 {
		t.Errorf("of 5000 warnings that a client can have the log has %d, want some", told)
	}
	if told := strings.Count(log.String(), "msg=quarantined"); told != 5000 {
		t.Errorf("of 5000 warnings the log has %d", told)
	}
}
