package cluster

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// engineBinary is what engine/main.c was compiled to.
func engineBinary(t *testing.T, root string) string {
	t.Helper()
	bin := os.Getenv("KVPIPE_BIN")
	if bin == "" {
		bin = "../../build/bin"
	}
	path := filepath.Join(bin, "test-engine")
	if _, err := os.Stat(filepath.Join(root, path)); err != nil {
		t.Fatalf("%v: make build makes it", err)
	}
	return path
}

// Engine is a process of engine/main.c, which can be started again after it ended. What it says of a broken promise fails the test.
type Engine struct {
	t      *testing.T
	Role   string
	Name   string              // of its next start; empty: its role
	Env    []string            // more environment of its next start
	As     *syscall.Credential // user of its next start; nil: the test's own
	Time   time.Duration       // of a take and of an offer's lease, in whole seconds; 0: a second or so
	Pipe   string              // the end of a pipe that it has, as engine/engine.h says it; empty: none
	Lookup string              // the end of a lookup buffer, likewise
	Root   string              // root directory of its next start, in which $KVPIPE_BIN is; empty: the test's own
	n      *Node
	heard  func(word string, rest []string) // of each line that it says and that has more than a word
	Cmd    *exec.Cmd
	exited chan struct{}

	mu   sync.Mutex
	in   io.WriteCloser
	said map[string]int // lines by first word, of all its lives
	grew chan struct{}
}

// NewEngine describes an engine of the node, "prefill" or "decode"; Start runs it.
func NewEngine(t *testing.T, role string, n *Node, heard func(string, []string)) *Engine {
	return &Engine{t: t, Role: role, n: n, heard: heard, said: map[string]int{}, grew: make(chan struct{})}
}

// Start runs the engine. cancels is how many takes of a hundred it cancels.
func (e *Engine) Start(cancels int) {
	e.t.Helper()
	args := []string{e.n.Socket, e.Role, cmp.Or(e.Name, e.Role), strconv.Itoa(cancels)}
	if e.Time > 0 {
		args = append(args, strconv.Itoa(int(e.Time.Seconds())))
	}
	cmd := exec.Command(engineBinary(e.t, e.Root), args...)
	cmd.Env = append(os.Environ(), e.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: e.As, Chroot: e.Root}
	in, err := cmd.StdinPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	exited := make(chan struct{})
	e.mu.Lock()
	e.Cmd, e.in, e.exited = cmd, in, exited
	e.mu.Unlock()
	go func() {
		defer close(exited)
		for s := bufio.NewScanner(out); s.Scan(); {
			e.hear(s.Text())
		}
		// By the status: also a test that was about to kill it is told.
		if err := cmd.Wait(); !killed(cmd) {
			e.t.Errorf("%s on %s has ended by itself: %v", e.Role, e.n.Name, cmp.Or(err, errors.New("exit status 0")))
		}
	}()
	e.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	if e.Pipe != "" {
		e.Tell("pipe %s", e.Pipe)
	}
	if e.Lookup != "" {
		e.Tell("lookup %s", e.Lookup)
	}
	e.Tell("go")
}

// hear takes note of one line. Broken promises fail the test where they are said.
func (e *Engine) hear(line string) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return
	}
	e.mu.Lock()
	e.said[words[0]]++
	if words[0] == "parted" {
		e.said["parted: "+strings.Join(words[1:], " ")]++
	}
	if words[0] == "failed" && len(words) > 2 {
		e.said["failed: "+strings.SplitN(strings.Join(words[2:], " "), ":", 2)[0]]++
	}
	close(e.grew)
	e.grew = make(chan struct{})
	e.mu.Unlock()
	switch words[0] {
	case "wrong", "late", "hung", "over":
		e.t.Errorf("%s on %s: %s", e.Role, e.n.Name, line)
	}
	if e.heard != nil && len(words) > 1 {
		e.heard(words[0], words[1:])
	}
}

// Tell sends a line; one that is dead does not hear it.
func (e *Engine) Tell(format string, a ...any) {
	e.mu.Lock()
	in := e.in
	e.mu.Unlock()
	if in != nil {
		_, _ = fmt.Fprintf(in, format+"\n", a...)
	}
}

// Count is how often the engine, in all its lives, has said word.
func (e *Engine) Count(word string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.said[word]
}

// Waits until the engine, in all its lives, has said word n times. As long as the count grows it is not late.
func (e *Engine) Waits(word string, n int) {
	e.t.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	for last := 0; ; {
		e.mu.Lock()
		got, grew := e.said[word], e.grew
		e.mu.Unlock()
		if got >= n {
			return
		}
		if got > last {
			last = got
			limit.Reset(Patience)
		}
		select {
		case <-grew:
		case <-limit.C:
			e.t.Fatalf("%s on %s has said %q %d times after %s, want %d; in all %v", e.Role, e.n.Name, word, got, Patience, n, e.All())
		}
	}
}

// All is Count of every word.
func (e *Engine) All() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[string]int{}
	for w, n := range e.said {
		all[w] = n
	}
	return all
}

// Quiet lets everything under way end. A pipe and a lookup buffer stay open, and nothing is in them.
func (e *Engine) Quiet() { e.t.Helper(); e.quiet("pause") }

// Silent is Quiet without these.
func (e *Engine) Silent() { e.t.Helper(); e.quiet("close") }

func (e *Engine) quiet(word string) {
	e.t.Helper()
	n := e.Count("idle")
	e.Tell("%s", word)
	e.Waits("idle", n+1)
}

// killed tells whether SIGKILL ended a process, as tests and nobody else send it.
func killed(cmd *exec.Cmd) bool {
	st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && st.Signaled() && st.Signal() == syscall.SIGKILL
}

// Kill ends the engine as a crash does.
func (e *Engine) Kill() {
	e.t.Helper()
	_ = e.Cmd.Process.Signal(syscall.SIGKILL)
	select {
	case <-e.exited:
	case <-time.After(Patience):
		e.t.Fatalf("%s has not ended after SIGKILL", e.Role)
	}
}
