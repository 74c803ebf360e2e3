package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
)

const patience = time.Minute

// node is a daemon within the test's process.
type node struct {
	*Daemon
	t    *testing.T
	log  *logbook
	stop func() // returns when it has stopped; once
	ctl  *admin.Client
}

// logbook keeps what is logged.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func textLog(to *logbook) *slog.Logger {
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// settings are those of a development daemon at free ports.
func settings(t *testing.T, name, ca string) (config.Config, Flags) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "kvd") // short: paths of unix sockets have a limit
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	c := config.Default()
	c.Metrics, c.Log.Level = "127.0.0.1:0", "debug"
	c.GPU.NVML = "off" // tests do not depend on what this machine has
	return c, Flags{Node: name, StateDir: filepath.Join(dir, name), Listen: "127.0.0.1:0", CA: ca}
}

// start runs a daemon until the test ends.
func start(t *testing.T, name, ca string, change func(*config.Config)) *node {
	t.Helper()
	return startOn(t, name, ca, "", change)
}

// startOn is start on a machine whose sysfs is at sys; "": this one's.
func startOn(t *testing.T, name, ca, sys string, change func(*config.Config)) *node {
	t.Helper()
	c, f := settings(t, name, ca)
	if change != nil {
		change(&c)
	}
	c, err := Complete(c, f, true)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, log: new(logbook)}
	n.Daemon, err = New(c, Options{Dev: true, Version: "test", Sys: sys, Log: textLog(n.log)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("node %s stopped with %v", name, err)
		}
	})
	n.ctl = admin.NewClient(c.Admin)
	t.Cleanup(func() {
		n.stop()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, n.log)
		}
	})
	return n
}

// pair starts two nodes, a and b, that know each other.
func pair(t *testing.T, change func(*config.Config)) (a, b *node) {
	t.Helper()
	ca := t.TempDir()
	a = start(t, "a", ca, change)
	b = start(t, "b", ca, func(c *config.Config) {
		c.Peers.Nodes = map[string]string{"a": a.listenAddr()}
		if change != nil {
			change(c)
		}
	})
	next := a.cfg
	next.Peers.Nodes = map[string]string{"b": b.listenAddr()}
	a.Reload(loaded(next))
	return a, b
}

// get asks the admin interface.
func get[T any](n *node, what string) T {
	n.t.Helper()
	var v T
	if err := n.ctl.Get(n.t.Context(), what, nil, &v); err != nil {
		n.t.Fatalf("%s: %v", what, err)
	}
	return v
}

// eventually waits for something that no event announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not so after %s", what, patience)
		}
	}
}

// loaded is for Reload.
func loaded(c config.Config) func() (config.Config, error) {
	return func() (config.Config, error) { return c, nil }
}
