package daemon

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/kvpipe/kvpipe/daemon/config"
)

// manager is a service manager's end of sd_notify(3).
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

// newManager makes daemons that start after it notify it.
func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return &manager{t, conn}
}

// next returns the next message, as lines.
func (m *manager) next() []string {
	m.t.Helper()
	b := make([]byte, 4096)
	_ = m.conn.SetReadDeadline(time.Now().Add(patience))
	n, err := m.conn.Read(b)
	if err != nil {
		m.t.Fatalf("no message: %v", err)
	}
	return strings.Split(string(b[:n]), "\n")
}

// await reads up to a message that has the line.
func (m *manager) await(prefix string) (message []string, line string) {
	m.t.Helper()
	for {
		message = m.next()
		for _, l := range message {
			if strings.HasPrefix(l, prefix) {
				return message, l
			}
		}
	}
}

func monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// TestNotify: the life of a daemon as its service manager hears it. A reload is between RELOADING, with the time at which it began, and
// READY, also when the file is bad.
func TestNotify(t *testing.T) {
	m := newManager(t)
	before := monotonic()
	n := start(t, "a", t.TempDir(), nil)
	if first := m.next(); first[0] != "READY=1" {
		t.Errorf("the first word is %q", first)
	}
	if _, status := m.await("STATUS="); status != "STATUS=0 sessions, 0B registered; 0 operations in flight, 0 offers held; peers: 0 up, 0 down" {
		t.Errorf("status: %s", status)
	}
	e := n.join("e", 1)
	for status := " 0B registered"; strings.Contains(status, " 0B registered"); { // when it had just opened
		_, status = m.await("STATUS=1 sessions, ")
	}
	e.Kill()

	n.Reload(loaded(n.cfg))
	reloading, word := m.await("RELOADING=1")
	at := int64(-1)
	for _, l := range reloading {
		if v, ok := strings.CutPrefix(l, "MONOTONIC_USEC="); ok {
			at, _ = strconv.ParseInt(v, 10, 64)
		}
	}
	if now := monotonic(); at < before.Microseconds() || at > now.Microseconds() {
		t.Errorf("%s at %d us, want it between %d and %d", word, at, before.Microseconds(), now.Microseconds())
	}
	m.await("READY=1")

	n.stop()
	stopping, _ := m.await("STOPPING=1")
	if text := strings.Join(stopping, " "); !strings.Contains(text, "EXTEND_TIMEOUT_USEC=30000000") { // drain_wait and 20 s
		t.Errorf("stopping: %s", text)
	}
}

// TestStatusIsOneLine: the manager shows one, and takes further ones for words of their own. A problem can have several.
func TestStatusIsOneLine(t *testing.T) {
	m, dir := newManager(t), t.TempDir()
	files := config.TLS{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "a.crt"), Key: filepath.Join(dir, "a.key")}
	start(t, "a", "", func(c *config.Config) { c.TLS = files })
	message, status := m.await("STATUS=")
	for _, want := range []string{files.CA, files.Cert, files.Key, "kvpipectl certs"} {
		if !strings.Contains(status, want) {
			t.Errorf("it lacks %s: %q", want, message)
		}
	}
}

// TestNobodyToNotify: without a manager nothing is sent, and nothing runs for it.
func TestNobodyToNotify(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "")
	synctest.Test(t, func(t *testing.T) {
		d := &Daemon{}
		if d.notify(sd.SdNotifyReady) {
			t.Error("somebody was told, it says: there is nobody")
		}
		for name, run := range map[string]func(context.Context){"report": d.report, "watch": d.watch} {
			var over atomic.Bool
			go func() {
				run(t.Context())
				over.Store(true)
			}()
			if synctest.Wait(); !over.Load() {
				t.Errorf("%s runs for nobody", name)
			}
		}
	})
}

// TestManagerThatHangs: one whose socket is full keeps neither a reload nor the end from anybody, and hears that the daemon is ready once
// it listens again.
func TestManagerThatHangs(t *testing.T) {
	m := newManager(t)
	to := m.conn.LocalAddr().(*net.UnixAddr)
	full := func() {
		c, err := net.DialUnix(to.Net, nil, to)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for err == nil {
			_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			_, err = c.Write([]byte("noise"))
		}
	}
	full()
	n := start(t, "a", t.TempDir(), nil)
	n.Reload(loaded(n.cfg))
	m.await("READY=1")
	full()
	n.stop()
}
