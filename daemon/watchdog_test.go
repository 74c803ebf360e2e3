package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/config"
)

// TestWatchdog: it is fed while all goes well, not while the driver stands still, and again afterwards.
func TestWatchdog(t *testing.T) {
	m := newManager(t)
	t.Setenv("WATCHDOG_PID", "")
	t.Setenv("WATCHDOG_USEC", "400000")
	n := start(t, "a", t.TempDir(), nil)
	for range 3 {
		m.await("WATCHDOG=1")
	}
	stuck, letGo := make(chan struct{}), make(chan struct{})
	n.driver.Post(func() { close(stuck); <-letGo })
	<-stuck
	const want = `level=ERROR msg="the watchdog is not fed" part=driver error="no answer within 100ms"`
	eventually(t, "the log names the driver", func() bool { return strings.Contains(n.log.String(), want) })
	// What was sent before comes first; after it nothing more comes, however long the manager waits.
	n.notify("X_TEST=1")
	m.await("X_TEST=1")
	_ = m.conn.SetReadDeadline(time.Now().Add(2 * 400 * time.Millisecond))
	fed := 0
	for b := make([]byte, 4096); ; {
		k, err := m.conn.Read(b)
		if err != nil {
			break
		}
		if strings.Contains(string(b[:k]), "WATCHDOG=1") {
			fed++
		}
	}
	if fed > 0 {
		t.Errorf("fed %d times by a daemon whose driver stands still", fed)
	}
	close(letGo)
	m.await("WATCHDOG=1")
}

// TestParts: whose answers the watchdog depends on, with peers and without.
func TestParts(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	alone := start(t, "b", t.TempDir(), func(c *config.Config) { c.Metrics, c.Transports = "off", []string{"local"} })
	for _, c := range []struct {
		of   *node
		want string
	}{
		{n, "accept loop of admin, accept loop of metrics, accept loop of peers, accept loop of sessions, driver, transport local, transport tcp"},
		{alone, "accept loop of admin, accept loop of peers, accept loop of sessions, driver, transport local"},
	} {
		var names []string
		for _, p := range c.of.parts() {
			if err := p.ping(t.Context()); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
			names = append(names, p.name)
		}
		slices.Sort(names)
		if got := strings.Join(names, ", "); got != c.want {
			t.Errorf("parts: %s", got)
		}
	}
}

// TestSilentParts: all of those that do not answer are named, each with its reason.
func TestSilentParts(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	silent := part{"one", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
	broken := part{"two", func(context.Context) error { return errors.New("1 of 2 copy workers do not answer") }}
	if n.answered(t.Context(), append(n.parts(), silent, broken), 200*time.Millisecond) {
		t.Error("all have answered")
	}
	for _, want := range []string{`part=one error="no answer within 200ms"`, `part=two error="1 of 2 copy workers do not answer"`} {
		if log := n.log.String(); !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
}

// TestOddWatchdogs: one that is too quick to be fed is, as often as can be, and said to be; one that never bites is left alone.
func TestOddWatchdogs(t *testing.T) {
	m := newManager(t)
	t.Setenv("WATCHDOG_PID", "")
	t.Setenv("WATCHDOG_USEC", "9223372036854775807")
	(&Daemon{}).watch(t.Context()) // returns at once
	t.Setenv("WATCHDOG_USEC", "1")
	n := start(t, "a", t.TempDir(), nil)
	m.await("WATCHDOG=1")
	if log := n.log.String(); !strings.Contains(log, "watchdog may bite") {
		t.Errorf("the log does not say that it is too quick:\n%s", log)
	}
}
