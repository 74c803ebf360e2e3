package session_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/leak"
	"github.com/kvpipe/kvpipe/internal/sys"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		os.Exit(child(what))
	}
	leak.Main(m)
}

const patience = time.Minute

// node is a server with a driver that does nothing but fence at once; tests take over what they want to see.
type node struct {
	*session.Server
	t    testing.TB
	path string

	completing sync.Mutex // instead of the driver's turn

	mu     sync.Mutex
	events []transfer.Event
	grew   chan struct{}                    // closed and replaced when events grow
	answer func(transfer.Event) (done bool) // first to see an event
}

func start(t testing.TB, change func(*session.Config)) *node {
	t.Helper()
	n := &node{t: t, path: filepath.Join(t.TempDir(), "s"), grew: make(chan struct{})}
	cfg := session.Config{Node: "n0", Advertise: "127.0.0.1:7650", Version: "test", Epoch: 7, Events: n.event}
	if change != nil {
		change(&cfg)
	}
	l, err := sys.ListenSeqpacket(n.path, sys.ListenOptions{})
	noErr(t, err)
	n.Server, err = session.New(cfg)
	noErr(t, err)
	served := make(chan error, 1)
	go func() { served <- n.Serve(l) }()
	t.Cleanup(func() {
		noErr(t, n.Close())
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return n
}

// on makes f the first to see events; what it says true to is not handled further.
func (n *node) on(f func(transfer.Event) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = f
}

func (n *node) event(ev transfer.Event) {
	n.mu.Lock()
	n.events = append(n.events, ev)
	close(n.grew)
	n.grew = make(chan struct{})
	f := n.answer
	n.mu.Unlock()
	// Like the driver, never on the goroutine that reports.
	go func() {
		if f != nil && f(ev) {
			return
		}
		switch ev := ev.(type) {
		case transfer.SessionClosed:
			n.SessionDrained(ev.Session)
		case transfer.RegionRemoved:
			n.RegionDrained(transfer.RegionDrained{Session: ev.Session, Region: ev.Region})
		case transfer.RegionInvalidated:
			n.RegionDrained(transfer.RegionDrained{Session: ev.Session, Region: ev.Region})
		case transfer.Submit:
			n.Complete(transfer.Complete{Session: ev.Session, UserData: ev.UserData, Tag: ev.Tag, Status: transfer.Done})
		}
	}()
}

// Complete does what the driver does with what is completed alone.
func (n *node) Complete(c transfer.Complete) {
	n.completing.Lock()
	defer n.completing.Unlock()
	n.Server.Complete(c)
	n.Server.Ring()
}

// wait returns the first event, from the beginning, that is what f looks for.
func wait[E transfer.Event](n *node, f func(E) bool) E {
	n.t.Helper()
	deadline := time.After(patience)
	for {
		n.mu.Lock()
		for _, ev := range n.events {
			if e, ok := ev.(E); ok && (f == nil || f(e)) {
				n.mu.Unlock()
				return e
			}
		}
		grew := n.grew
		n.mu.Unlock()
		select {
		case <-grew:
		case <-deadline:
			var e E
			n.t.Fatalf("no %T came; events: %v", e, n.events)
		}
	}
}

// count returns how many events of a kind there are.
func count[E transfer.Event](n *node) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := 0
	for _, ev := range n.events {
		if _, ok := ev.(E); ok {
			c++
		}
	}
	return c
}

// dial opens a session that ends with the test.
func (n *node) dial(o sessiontest.Options) *sessiontest.Client {
	n.t.Helper()
	if o.Engine == "" {
		o.Engine = "e"
	}
	c, err := sessiontest.Dial(n.path, o)
	noErr(n.t, err)
	n.t.Cleanup(c.Kill)
	return c
}

// empty waits until no session is left.
func (n *node) empty() { n.t.Helper(); n.empties(0) }

// empties waits until want sessions are left. Nothing announces the very end of one.
func (n *node) empties(want int) {
	n.t.Helper()
	eventually(n.t, func() bool { return len(n.Sessions()) == want }, "sessions: %+v", n.Sessions)
}

// eventually waits for something that no event announces.
func eventually[T any](t testing.TB, ok func() bool, format string, state func() T) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf(format, state())
		}
	}
}

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
