package session_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

const childEnv = "KVPIPE_SESSION_TEST_CHILD"

// child is a client in a process of its own, which this test kills. With "fork" it has a child that keeps the connection
// open after it.
func child(what string) int {
	mode, path, _ := strings.Cut(what, ":")
	if mode == "hold" {
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the test lets go
		return 0
	}
	if mode == "serve" {
		return serve(path)
	}
	c, err := sessiontest.Dial(path, sessiontest.Options{Engine: mode})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	held = c
	if _, _, err := c.Alloc(1 << 20); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if mode == "fork" {
		heir, err := os.StartProcess("/proc/self/exe", []string{"heir"}, &os.ProcAttr{
			Env: []string{childEnv + "=hold:"}, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, file(c)},
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		_ = heir.Release()
	}
	fmt.Println("ready")
	select {} // until it is killed
}

// held is the connection of a child. The collector closes connections that nobody holds.
var held *sessiontest.Client

func file(c *sessiontest.Client) *os.File {
	f, err := c.Conn.File()
	if err != nil {
		panic(err)
	}
	return f
}

// TestKilledClients: the end of a process is the end of its session, also when a child keeps the connection open.
func TestKilledClients(t *testing.T) {
	n := start(t, nil)
	for _, mode := range []string{"alone", "fork"} {
		t.Run(mode, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, "/proc/self/exe")
			cmd.Env = append(os.Environ(), childEnv+"="+mode+":"+n.path)
			cmd.Stderr = os.Stderr
			// Files and not pipes of exec's: Wait must not wait for the heir, which ends when hold is closed.
			in, hold, err := os.Pipe()
			noErr(t, err)
			defer hold.Close()
			r, out, err := os.Pipe()
			noErr(t, err)
			defer r.Close()
			cmd.Stdin, cmd.Stdout = in, out
			noErr(t, cmd.Start())
			noErr(t, in.Close())
			noErr(t, out.Close())
			if _, err := r.Read(make([]byte, 6)); err != nil {
				t.Fatal(err)
			}
			opened := wait(n, func(e transfer.SessionOpened) bool { return e.Engine == mode })
			noErr(t, cmd.Process.Kill())
			_ = cmd.Wait()
			closed := wait(n, func(e transfer.SessionClosed) bool { return e.Session == opened.Session })
			if closed.Cause.Reason != transfer.PeerGone || !closed.Died {
				t.Errorf("closed because of %+v, died: %v", closed.Cause, closed.Died)
			}
			n.empty()
			if n.Pinned() != 0 {
				t.Errorf("%d bytes are registered", n.Pinned())
			}
			noErr(t, hold.Close())
			_, _ = r.Read(make([]byte, 1)) // the heir is gone as well
		})
	}
}

// TestClosedOrder: the session is closed, then fenced, then unmapped, and only then is BYE answered.
func TestClosedOrder(t *testing.T) {
	n := start(t, nil)
	closed := make(chan transfer.SessionID, 1)
	n.on(func(ev transfer.Event) bool {
		e, ok := ev.(transfer.SessionClosed)
		if ok {
			closed <- e.Session
		}
		return ok
	})
	c := n.dial(sessiontest.Options{})
	_, _, err := c.Alloc(4096)
	noErr(t, err)
	done := make(chan error, 1)
	go func() { done <- c.Close() }()
	id := <-closed
	if n.Pinned() != 4096 || !n.Has(id) {
		t.Error("the memory is gone before the fence")
	}
	select {
	case err := <-done:
		t.Fatalf("BYE is answered before the fence: %v", err)
	default:
	}
	n.SessionDrained(id)
	n.SessionDrained(id)
	noErr(t, <-done)
	if n.Pinned() != 0 || n.Has(id) {
		t.Error("the memory is there after BYE was answered")
	}
}

// TestEndAll ends all sessions with a reason, and waits for their fences.
func TestEndAll(t *testing.T) {
	n := start(t, nil)
	a, b := n.dial(sessiontest.Options{Engine: "a"}), n.dial(sessiontest.Options{Engine: "b"})
	noErr(t, n.EndAll(context.Background(), transfer.Cause{Reason: transfer.Unavailable, Text: "going down"}))
	for _, c := range []*sessiontest.Client{a, b} {
		if cause, err := c.Bye(); err != nil || cause.Text != "going down" {
			t.Errorf("told %+v, %v", cause, err)
		}
	}
	if n.Sessions() != nil {
		t.Errorf("sessions are left: %+v", n.Sessions())
	}
	n.refused(sessiontest.Options{}, transfer.Unavailable)

	stuck := start(t, nil)
	stuck.on(func(ev transfer.Event) bool { _, closed := ev.(transfer.SessionClosed); return closed })
	c := stuck.dial(sessiontest.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := stuck.EndAll(ctx, transfer.Cause{Reason: transfer.Unavailable}); err == nil {
		t.Error("a session that is not fenced counts as drained")
	}
	noErr(t, stuck.Close()) // does not wait
	if c.Rings.Closed() == 0 {
		t.Error("the closed word is not set")
	}
}

// TestCloseWithConnections closes the server while clients are in every state.
func TestCloseWithConnections(t *testing.T) {
	for _, mode := range []string{"event", "busy"} {
		n := start(t, func(c *session.Config) { c.PollMode = mode })
		conn, err := sys.DialSeqpacket(context.Background(), n.path) // says nothing
		noErr(t, err)
		defer conn.Close()
		c := n.dial(sessiontest.Options{})
		_, err = c.Submit(nil)
		noErr(t, err)
		noErr(t, n.Close())
		noErr(t, n.Close())
	}
}

func TestConfigIsJudged(t *testing.T) {
	good := session.Config{Node: "n", Epoch: 1, Events: func(transfer.Event) {}}
	for name, change := range map[string]func(*session.Config){
		"node": func(c *session.Config) { c.Node = "" }, "epoch": func(c *session.Config) { c.Epoch = 0 },
		"events": func(c *session.Config) { c.Events = nil }, "long": func(c *session.Config) { c.Node = strings.Repeat("n", 256) },
		"mode": func(c *session.Config) { c.PollMode = "sometimes" },
	} {
		cfg := good
		change(&cfg)
		if v, err := session.New(cfg); err == nil {
			_ = v.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}
