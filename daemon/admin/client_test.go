package admin_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/admin/admintest"
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

// TestAPathThatNoSocketHas is told with its length and the limit.
func TestAPathThatNoSocketHas(t *testing.T) {
	path := "/" + strings.Repeat("a", 107)
	err := admin.NewClient(path).Get(t.Context(), "status", nil, new(admin.Status))
	if err == nil || !strings.Contains(err.Error(), "a path of 108 bytes, that of a socket has at most 107") {
		t.Error(err)
	}
}
