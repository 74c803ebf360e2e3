package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
)

// TestAStateThatCannotBeWritten is a warning as long as it is so, in status and metrics, and does not fill the log.
func TestAStateThatCannotBeWritten(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	next := n.cfg.Socket + ".state.next"
	come := func() {
		t.Helper()
		c, err := sessiontest.Dial(n.cfg.Socket, sessiontest.Options{Engine: "e"})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(want bool, series string) {
		t.Helper()
		warns := slices.ContainsFunc(get[admin.Status](n, "status").Warnings, func(w string) bool {
			return strings.HasPrefix(w, "sessions cannot be remembered for a restart: state: ") && strings.Contains(w, next)
		})
		if warns != want {
			t.Errorf("a warning: %v, want %v", warns, want)
		}
		eventually(t, series, func() bool { return strings.Contains(n.scraped(), series) }) // a page may be that of a moment ago
	}
	come()
	shows(false, `kvpipe_warnings{kind="state"} 0`)

	if err := os.MkdirAll(filepath.Join(next, "in the way"), 0o700); err != nil { // root would not mind permissions
		t.Fatal(err)
	}
	for range 20 {
		come()
	}
	shows(true, `kvpipe_warnings{kind="state"} 1`)
	if told := strings.Count(n.log.String(), `msg="sessions cannot be remembered for a restart"`); told < 1 || told > 4 {
		t.Errorf("the log says it %d times, want a few", told)
	}

	if err := os.RemoveAll(next); err != nil {
		t.Fatal(err)
	}
	come()
	shows(false, `kvpipe_warnings{kind="state"} 0`)
}
