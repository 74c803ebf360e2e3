package daemon

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/config"
)

func TestCheckFiles(t *testing.T) {
	err := CheckFiles(config.Config{Group: "no-such-group", TCP: config.TCP{Congestion: "nosuch"}})
	if err == nil {
		t.Fatal("all is well")
	}
	for _, part := range []string{"in /etc/group: create it there, or give the number", `tcp.congestion: "nosuch": this kernel has `} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: lacks %q", err, part)
		}
	}
}

// TestAGroupByItsNumber: one that only a directory service knows, or nobody, has a number all the same.
func TestAGroupByItsNumber(t *testing.T) {
	for name, want := range map[string]int{"61234": 61234, "root": 0, "0": 0, "-5": -1, "4294967296": -1} {
		id, err := groupID(name)
		if (err == nil) != (want >= 0) || err == nil && id != want {
			t.Errorf("%q: %d, %v; want %d", name, id, err, want)
		}
	}
}

// completed are the settings of a daemon, with the directory of its socket.
func completed(t *testing.T) config.Config {
	t.Helper()
	cfg, f := settings(t, "a", t.TempDir())
	cfg, err := Complete(cfg, f, true)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(cfg.Socket), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// inService is a daemon that is not run, and not for development. The service manager may pass it sockets.
func inService(t *testing.T, cfg config.Config, passed map[string][]*os.File) *Daemon {
	t.Helper()
	d, err := New(cfg, Options{Version: "test", Sockets: passed, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.closeListeners()
		if err := d.release(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestNewThatFails leaves nothing behind, wherever it fails (the leak gate looks at descriptors and goroutines).
func TestNewThatFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct {
		change func(*config.Config)
		dev    bool
		want   string
	}{
		"port":    {func(c *config.Config) { c.Listen = taken.Addr().String() }, true, "is in use"},
		"socket":  {func(c *config.Config) { c.Socket = filepath.Join(c.Socket, "below", "a", "file") }, true, "socket directory"},
		"group":   {func(c *config.Config) { c.Group = "no-such-group" }, false, "create it"},
		"session": {func(c *config.Config) { c.Advertise = strings.Repeat("x", 200) + ":1" }, true, "too long"},
		"admin":   {func(c *config.Config) { c.Admin = filepath.Dir(c.Admin) }, true, "not a socket"},
		"metrics": {func(c *config.Config) { c.Metrics = "127.0.0.1:no-such-port" }, false, "metrics: "},
		"all":     {func(c *config.Config) { c.Metrics = "0.0.0.0:0" }, false, "all addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := completed(t)
			if name == "socket" {
				if err := os.WriteFile(cfg.Socket, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c.change(&cfg)
			d, err := New(cfg, Options{Dev: c.dev, Version: "test", Log: slog.New(slog.DiscardHandler)})
			if err == nil {
				d.closeListeners()
				_ = d.release()
				t.Fatal("it does not fail")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			for _, s := range []string{cfg.Socket, cfg.Admin} {
				if st, err := os.Lstat(s); err == nil && st.Mode().Type() == os.ModeSocket {
					t.Errorf("%s is left behind", s)
				}
			}
		})
	}
}

// TestANameThatNobodyKnowsYet, as where a node starts before its name server does: engines are served all the same, and it is tried again.
func TestANameThatNobodyKnowsYet(t *testing.T) {
	cfg := completed(t)
	cfg.Listen, cfg.Metrics = "a.invalid:7650", "a.invalid:7651"
	d := inService(t, cfg, nil)
	for i, p := range d.closed.problems() {
		if key := []string{"listen", "metrics"}[i]; p.kind != key || !strings.HasPrefix(p.text, key+`: the name in "a.invalid:765`) {
			t.Errorf("%+v", p)
		}
	}
	if n := len(d.closed.problems()); n != 2 {
		t.Errorf("%d problems", n)
	}
	if got := d.advertise(); got != "a.invalid:7650" {
		t.Errorf("other nodes are to dial %q", got)
	}
}

// TestAPassedSocketWhoseNameNobodyKnowsYet: the service manager's socket for peers is used, though it cannot be compared with such a name.
func TestAPassedSocketWhoseNameNobodyKnowsYet(t *testing.T) {
	manager, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	passed, err := manager.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	cfg := completed(t)
	cfg.Listen, cfg.Metrics = "a.invalid:7650", "off"
	d := inService(t, cfg, map[string][]*os.File{socketPeer: {passed}})
	if got, want := d.listenAddr(), manager.Addr().String(); got != want {
		t.Errorf("it listens at %q, want %s", got, want)
	}
}

// TestAPortThatAnotherHasYet is advertised all the same.
func TestAPortThatAnotherHasYet(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := completed(t)
	cfg.Listen, cfg.Metrics = taken.Addr().String(), "off"
	d := inService(t, cfg, nil)
	if got := d.advertise(); got != cfg.Listen {
		t.Errorf("other nodes are to dial %q, not %s", got, cfg.Listen)
	}
}

// TestCongestionThatIsNotThere is said at the start, with what there is.
func TestCongestionThatIsNotThere(t *testing.T) {
	cfg := completed(t)
	cfg.TCP.Congestion = "nosuch"
	o := Options{Dev: true, Version: "test", Log: slog.New(slog.DiscardHandler)}
	if _, err := New(cfg, o); err == nil || !strings.Contains(err.Error(), `tcp.congestion: "nosuch": this kernel has `) {
		t.Errorf("%v", err)
	}
}

// TestNewThatFailsEarly takes over what the service manager passed all the same.
func TestNewThatFailsEarly(t *testing.T) {
	cfg := completed(t)
	cfg.CPUs = "no number"
	passed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Dev: true, Version: "test", Sockets: map[string][]*os.File{socketPeer: {passed}}, Log: slog.New(slog.DiscardHandler)}
	if _, err := New(cfg, o); err == nil || !strings.Contains(err.Error(), "cpus: ") {
		t.Errorf("%v", err)
	}
	if _, err := passed.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the descriptor is open still: %v", err)
	}
}

// TestPassedSocketThatDoesNotListen: what is a connection already is refused, instead of a daemon that nobody reaches.
func TestPassedSocketThatDoesNotListen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for want, from := range map[string]interface{ File() (*os.File, error) }{"": l.(*net.TCPListener), "does not listen": conn.(*net.TCPConn)} {
		f, err := from.File()
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Sockets: map[string][]*os.File{socketPeer: {f}}}
		passed, err := o.passed(socketPeer)
		if o.forget(); err == nil {
			_ = passed.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestWindowsOfCopyWorkers: each copy worker adds a window to what is posted within the node, and none to what is posted to a peer.
func TestWindowsOfCopyWorkers(t *testing.T) {
	cfg := config.Default()
	cfg.Local.CopyWorkers, cfg.Advanced.Window = 5, 3<<20
	if m := machineConfig(&cfg); m.WindowsHere != 5 || m.WindowBytes != 3<<20 {
		t.Errorf("%d windows of %d bytes, want 5 of 3 MiB", m.WindowsHere, m.WindowBytes)
	}
}
