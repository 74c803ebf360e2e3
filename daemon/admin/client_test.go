package admin_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/admin/admintest"
	"github.com/kvpipe/kvpipe/daemon/config"
)

// TestADaemonThatStandsStill does not hold up who asks, whether it says nothing or stops in the middle.
func TestADaemonThatStandsStill(t *testing.T) {
	for name, begin := range map[string]string{"nothing": "", "half an answer": `{"node": "a`} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if begin != "" {
					_, _ = w.Write([]byte(begin))
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			})}
			served := make(chan error, 1)
			go func() { served <- server.Serve(l) }()
			defer func() {
				_ = server.Close()
				<-served
			}()
			var s admin.Status
			c := admin.NewClient(path).Within(20 * time.Millisecond)
			if err := c.Get(t.Context(), "status", nil, &s); err == nil || !strings.Contains(err.Error(), path+" has not answered for 20ms") {
				t.Errorf("%v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := c.Within(time.Minute).Get(ctx, "status", nil, &s); !errors.Is(err, context.Canceled) {
				t.Errorf("%v, of a caller who gave up", err)
			}
		})
	}
}

// TestADaemonThatEndsMeanwhile is named, whatever the kernel calls it.
func TestADaemonThatEndsMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for read := false; ; read = !read {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if read {
				_, _ = conn.Read(make([]byte, 4096))
			}
			_ = conn.Close()
		}
	}()
	for range 4 {
		var s admin.Status
		if err := admin.NewClient(path).Get(t.Context(), "status", nil, &s); err == nil || !strings.Contains(err.Error(), "the daemon at "+path+" hung up before it had answered") {
			t.Errorf("%v", err)
		}
	}
}

// TestPlaces: what is not there, and what a daemon that is gone left behind, hides no daemon at another place. Without one, all are named.
func TestPlaces(t *testing.T) {
	dir := t.TempDir()
	dead, none := filepath.Join(dir, "dead"), filepath.Join(dir, "none")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	var s admin.Status
	if err := admin.NewClient(dead, none, admintest.Serve(t, admintest.Example())).Get(t.Context(), "status", nil, &s); err != nil || s.Node != "prefill-0" {
		t.Errorf("%q, %v", s.Node, err)
	}
	err = admin.NewClient(dead, none).Get(t.Context(), "status", nil, &s)
	if !errors.Is(err, admin.ErrNoDaemon) || !strings.HasPrefix(err.Error(), "no daemon at "+dead+" or "+none+": ") {
		t.Error(err)
	}
}

// engines is a socket for engines beside an admin socket of this name, with that mode.
func engines(t *testing.T, admin string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(filepath.Dir(admin), "kvpiped.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

// asNobody runs it as a user to whom a mode means something.
func asNobody(t *testing.T, run func()) {
	t.Helper()
	if was := os.Geteuid(); was == 0 {
		if err := syscall.Seteuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Seteuid(was); err != nil {
				t.Fatal(err)
			}
		}()
	}
	run()
}

// TestADaemonThatIsNotForThisUser hides no other one, unless this user's engines use it: then another one's answer would be about the wrong one.
// Where there is no other, it is named.
func TestADaemonThatIsNotForThisUser(t *testing.T) {
	other, err := os.MkdirTemp("/tmp", "kva") // which another user may pass
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(other) }()
	at := filepath.Join(other, "admin.sock")
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: admin.New(admintest.Example(), nil)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		_ = server.Close()
		<-served
	}()
	if err := errors.Join(os.Chmod(other, 0o755), os.Chmod(at, 0o666)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		engines        os.FileMode
		noEngines      bool
		noOther, found bool
	}{
		"nor for its engines":       {found: true},
		"but is for its engines":    {engines: 0o666},
		"nor is there another":      {noOther: true},
		"and there is none at all":  {noEngines: true, found: true},
		"and no other one, at all":  {noEngines: true, noOther: true},
		"the only one, for engines": {engines: 0o666, noOther: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "kvb")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.RemoveAll(dir) }()
			barred := filepath.Join(dir, "admin.sock")
			if err := errors.Join(os.WriteFile(barred, nil, 0), os.Chmod(dir, 0o755)); err != nil {
				t.Fatal(err)
			}
			if !c.noEngines {
				engines(t, barred, c.engines)
			}
			places := []string{at}
			if c.noOther {
				places[0] = filepath.Join(other, "none")
			}
			asNobody(t, func() {
				var s admin.Status
				err := admin.NewClient(barred, places...).Get(t.Context(), "status", nil, &s)
				if (err == nil) != c.found || err != nil && !strings.HasPrefix(err.Error(), barred+": permission denied: the admin socket is for") {
					t.Errorf("%q, %v", s.Node, err)
				}
			})
		})
	}
}

// TestWhatCouldBeAStrangers is asked nothing, however it was named, and it is said why.
func TestWhatCouldBeAStrangers(t *testing.T) {
	was := config.Tmp
	defer func() { config.Tmp = was }()
	config.Tmp = t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", "")
	dir := config.DevDir()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	place, none := filepath.Join(dir, "admin.sock"), filepath.Join(config.Tmp, "none")
	if err := os.Symlink(admintest.Serve(t, admintest.Example()), place); err != nil {
		t.Fatal(err)
	}
	var s admin.Status
	if err := admin.NewClient(place).Get(t.Context(), "status", nil, &s); err != nil || s.Node != "prefill-0" {
		t.Errorf("%q, %v", s.Node, err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err := admin.NewClient(place).Get(t.Context(), "status", nil, &s)
	if err == nil || errors.Is(err, admin.ErrNoDaemon) || !strings.HasPrefix(err.Error(), dir+" belongs to ") || !strings.Contains(err.Error(), "remove it, or name another") {
		t.Errorf("named: %v", err)
	}
	err = admin.NewClient(none, place).Get(t.Context(), "status", nil, &s)
	if !errors.Is(err, admin.ErrNoDaemon) || !strings.HasPrefix(err.Error(), "no daemon at "+none+": ") || !strings.Contains(err.Error(), "a stranger's: "+dir+" belongs to ") {
		t.Errorf("one of two: %v", err)
	}
}

// TestAPathThatNoSocketHas is told with its length and the limit.
func TestAPathThatNoSocketHas(t *testing.T) {
	path := "/" + strings.Repeat("a", 107)
	err := admin.NewClient(path).Get(t.Context(), "status", nil, new(admin.Status))
	if err == nil || !strings.Contains(err.Error(), "a path of 108 bytes, that of a socket has at most 107") {
		t.Error(err)
	}
}
