package cluster

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

// Patience bounds every wait; nothing is expected to take a fraction of it. Tests on slow machines set another before they begin.
var Patience = time.Minute

// Cluster is nodes that share a CA, each at a loopback address of its own.
type Cluster struct {
	t   *testing.T
	Dir string
}

// New makes a cluster without nodes; what it leaves is removed when the test ends.
func New(t *testing.T) *Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "kvp") // short: paths of unix sockets have a limit
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &Cluster{t, dir}
}

// CA is the directory of the CA that all nodes share.
func (c *Cluster) CA() string { return filepath.Join(c.Dir, "ca") }

// Node is one kvpiped, which can be started again after it ended.
type Node struct {
	T      *testing.T
	c      *Cluster
	Name   string
	Addr   string // of its peer port; the same after a restart
	In     string // the network namespace that it runs in; empty: the test's own
	Binary string // of its next start; empty: the kvpiped that is tested
	Socket string // of engines
	Args   []string
	Env    []string // more environment of its next start
	Ctl    *admin.Client
	Config string // its file
	Beats  string // between heartbeats; a peer that is silent for three of them is gone
	Idle   string // after which a channel without work is closed

	Cmd    *exec.Cmd // of the run at hand
	exited chan struct{}
	mu     sync.Mutex
	lines  []string
	grew   chan struct{}
}

// Node describes a daemon that knows peers by name; Start runs it.
func (c *Cluster) Node(name string, peers ...*Node) *Node {
	c.t.Helper()
	home := filepath.Join(c.Dir, name)
	n := &Node{
		T: c.t, c: c, Name: name, Socket: filepath.Join(home, "s"), Config: filepath.Join(c.Dir, name+".toml"), Beats: "1s", Idle: "10m", grew: make(chan struct{}),
		// Nobody else listens on a loopback address drawn at random; at 7650 a kvpiped that serves this machine does, at all addresses. From 32768
		// on the system gives ports to whoever asks for any.
		Addr: fmt.Sprintf("127.%d.%d.%d:%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254), 8000+rand.IntN(24000)),
	}
	n.Ctl = admin.NewClient(filepath.Join(home, "a"))
	n.Args = []string{
		"--dev", "--config", n.Config, "--node", name, "--state-dir", home, "--socket", n.Socket, "--admin", filepath.Join(home, "a"),
		"--ca", c.CA(),
	}
	n.Configure("")
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("node %s:\n%s", n.Name, n.Log())
		}
	})
	for _, p := range peers {
		n.Knows(p)
	}
	return n
}

// Knows tells the daemon, before it starts, where p listens.
func (n *Node) Knows(p *Node) { n.KnowsAt(p.Name, p.Addr) }

// KnowsAt is Knows with an address at which p is reached by a way of the test's own.
func (n *Node) KnowsAt(name, addr string) { n.Args = append(n.Args, "--peer", name+"="+addr) }

// Configure writes the configuration file.
func (n *Node) Configure(more string) {
	n.T.Helper()
	text := "metrics = \"off\"\n" + more + "\n[peers]\nheartbeat = \"" + n.Beats + "\"\nidle_close = \"" + n.Idle + "\"\ndial_max = \"200ms\"\n"
	if err := os.WriteFile(n.Config, []byte(text), 0o600); err != nil {
		n.T.Fatal(err)
	}
}

// Start runs the daemon until it is ready.
func (n *Node) Start() *Node {
	n.T.Helper()
	n.Launch()
	n.Says("msg=ready")
	return n
}

// Launch runs the daemon; it is killed when the test ends.
func (n *Node) Launch() {
	n.T.Helper()
	command := append([]string{cmp.Or(n.Binary, kvpiped), "--listen", n.Addr}, n.Args...)
	if n.In != "" {
		command = append([]string{"ip", "netns", "exec", n.In}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(append(os.Environ(), "XDG_RUNTIME_DIR="+n.c.Dir), n.Env...)
	out, err := cmd.StderrPipe()
	if err != nil {
		n.T.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.T.Fatal(err)
	}
	exited := make(chan struct{})
	n.Cmd, n.exited = cmd, exited
	n.mu.Lock()
	n.lines = nil
	n.mu.Unlock()
	go func() {
		defer close(exited)
		for s := bufio.NewScanner(out); s.Scan(); {
			n.mu.Lock()
			n.lines = append(n.lines, s.Text())
			close(n.grew)
			n.grew = make(chan struct{})
			n.mu.Unlock()
		}
		// With 0 it has ended as it was told, with 1 it has refused to start.
		err := cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 0 && code != 1 && !killed(cmd) {
			n.T.Errorf("node %s ended badly: %v", n.Name, err)
		}
	}()
	n.T.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
}

func (n *Node) Log() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.lines, "\n")
}

// Says waits for a line of the log of the run at hand that has all of parts.
func (n *Node) Says(parts ...string) {
	n.T.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	for {
		n.mu.Lock()
		lines, grew := n.lines, n.grew
		n.mu.Unlock()
		for _, l := range lines {
			if HasAll(l, parts) {
				return
			}
		}
		select {
		case <-grew:
		case <-n.exited:
			if !HasAll(n.Log(), parts) {
				n.T.Fatalf("node %s ended without saying %q:\n%s", n.Name, parts, n.Log())
			}
			return
		case <-limit.C:
			n.T.Fatalf("node %s does not say %q:\n%s", n.Name, parts, n.Log())
		}
	}
}

func HasAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// Kill ends the daemon as a crash does.
func (n *Node) Kill() { n.Signal(syscall.SIGKILL) }

// Stop ends it as a service manager does, which is told with 0 that all went well.
func (n *Node) Stop() {
	n.T.Helper()
	n.Signal(syscall.SIGTERM)
	if code := n.Cmd.ProcessState.ExitCode(); code != 0 {
		n.T.Errorf("node %s ended badly: exit status %d after SIGTERM", n.Name, code)
	}
}

func (n *Node) Signal(s syscall.Signal) {
	n.T.Helper()
	if err := n.Cmd.Process.Signal(s); err != nil {
		n.T.Fatal(err)
	}
	select {
	case <-n.exited:
	case <-time.After(Patience):
		n.T.Fatalf("node %s has not ended after %s", n.Name, s)
	}
}

// Reload makes the daemon read its configuration again.
func (n *Node) Reload() {
	n.T.Helper()
	if err := n.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
		n.T.Fatal(err)
	}
}

// Calm fails the test when the daemon's log has a warning or an error that none of but explains. That it stood still is its machine's doing.
func (n *Node) Calm(but ...string) {
	n.T.Helper()
	but = append(but, "the daemon stood still")
	for l := range strings.Lines(n.Log()) {
		if (strings.Contains(l, "level=WARN") || strings.Contains(l, "level=ERROR")) && !hasAny(l, but) {
			n.T.Errorf("node %s warns: %s", n.Name, l)
		}
	}
}

func hasAny(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}

// Peer returns what the daemon knows of another.
func (n *Node) Peer(name string) admin.Peer {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var all []admin.Peer
	if err := n.Ctl.Get(ctx, "peers", nil, &all); err != nil {
		n.T.Fatal(err)
	}
	for _, p := range all {
		if p.Node == name {
			return p
		}
	}
	return admin.Peer{}
}

// Epoch is that of the run at hand, as clients see it.
func (n *Node) Epoch() uint32 {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var s admin.Status
	if err := n.Ctl.Get(ctx, "status", nil, &s); err != nil {
		n.T.Fatal(err)
	}
	return s.Epoch
}

// Eventually waits for something that no event announces. What more says is told when it does not come.
func Eventually(t *testing.T, what string, ok func() bool, more ...func() string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(Patience); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			for _, m := range more {
				what += " (" + m() + ")"
			}
			t.Fatalf("%s: not so after %s", what, Patience)
		}
	}
}

// Alive fails the test when the daemon has ended.
func (n *Node) Alive() {
	n.T.Helper()
	select {
	case <-n.exited:
		n.T.Fatalf("node %s has ended:\n%s", n.Name, n.Log())
	default:
	}
}
