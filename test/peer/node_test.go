package peer

import (
	"bufio"
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

// patience bounds every wait; nothing is expected to take a fraction of it.
const patience = 30 * time.Second

// cluster is nodes that share a CA, each at a loopback address of its own.
type cluster struct {
	t   *testing.T
	dir string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "kvp") // short: paths of unix sockets have a limit
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &cluster{t, dir}
}

func (c *cluster) ca() string { return filepath.Join(c.dir, "ca") }

// node is one kvpiped, which can be started again after it ended.
type node struct {
	t      *testing.T
	c      *cluster
	name   string
	addr   string // the same after a restart
	socket string
	args   []string
	ctl    *admin.Client
	config string

	cmd    *exec.Cmd
	exited chan struct{}
	mu     sync.Mutex
	lines  []string
	grew   chan struct{}
}

// node describes a daemon that knows peers by name; start runs it.
func (c *cluster) node(name string, peers ...*node) *node {
	c.t.Helper()
	home := filepath.Join(c.dir, name)
	n := &node{
		t: c.t, c: c, name: name, socket: filepath.Join(home, "s"), config: filepath.Join(c.dir, name+".toml"), grew: make(chan struct{}),
		// Nobody else listens on a loopback address drawn at random.
		addr: fmt.Sprintf("127.%d.%d.%d:7650", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)),
	}
	n.ctl = admin.NewClient(filepath.Join(home, "a"))
	n.args = []string{
		"--dev", "--config", n.config, "--node", name, "--state-dir", home, "--socket", n.socket, "--admin", filepath.Join(home, "a"),
		"--listen", n.addr, "--ca", c.ca(),
	}
	n.configure("")
	for _, p := range peers {
		n.knows(p)
	}
	return n
}

func (n *node) knows(p *node) { n.args = append(n.args, "--peer", p.name+"="+p.addr) }

// configure writes the configuration file, with fast heartbeats.
func (n *node) configure(more string) {
	n.t.Helper()
	text := "metrics = \"off\"\n" + more + "\n[peers]\nheartbeat = \"200ms\"\ndial_max = \"200ms\"\n"
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// start runs the daemon until it is ready.
func (n *node) start() *node {
	n.t.Helper()
	n.launch()
	n.says("msg=ready")
	return n
}

// launch runs the daemon; it is killed when the test ends.
func (n *node) launch() {
	n.t.Helper()
	cmd := exec.Command(daemonBinary, n.args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+n.c.dir)
	out, err := cmd.StderrPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	exited := make(chan struct{})
	n.cmd, n.exited = cmd, exited
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
		_ = cmd.Wait()
	}()
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
		if n.t.Failed() {
			n.t.Logf("node %s:\n%s", n.name, n.log())
		}
	})
}

func (n *node) log() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.lines, "\n")
}

// says waits for a line of the log of the run at hand that has all of parts.
func (n *node) says(parts ...string) {
	n.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		n.mu.Lock()
		lines, grew := n.lines, n.grew
		n.mu.Unlock()
		for _, l := range lines {
			if hasAll(l, parts) {
				return
			}
		}
		select {
		case <-grew:
		case <-n.exited:
			if !hasAll(n.log(), parts) {
				n.t.Fatalf("node %s ended without saying %q:\n%s", n.name, parts, n.log())
			}
			return
		case <-limit.C:
			n.t.Fatalf("node %s does not say %q:\n%s", n.name, parts, n.log())
		}
	}
}

func hasAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// kill ends the daemon as a crash does.
func (n *node) kill() { n.signal(syscall.SIGKILL) }

// stop ends it as a service manager does.
func (n *node) stop() { n.signal(syscall.SIGTERM) }

func (n *node) signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
	select {
	case <-n.exited:
	case <-time.After(patience):
		n.t.Fatalf("node %s has not ended after %s", n.name, s)
	}
}

// calm fails the test when the daemon's log has a warning or an error that none of but explains.
func (n *node) calm(but ...string) {
	n.t.Helper()
	for l := range strings.Lines(n.log()) {
		if (strings.Contains(l, "level=WARN") || strings.Contains(l, "level=ERROR")) && !hasAny(l, but) {
			n.t.Errorf("node %s warns: %s", n.name, l)
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

// peer returns what the daemon knows of another.
func (n *node) peer(name string) admin.Peer {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all []admin.Peer
	if err := n.ctl.Get(ctx, "peers", nil, &all); err != nil {
		n.t.Fatal(err)
	}
	for _, p := range all {
		if p.Node == name {
			return p
		}
	}
	return admin.Peer{}
}

// eventually waits for something that no event announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not so after %s", what, patience)
		}
	}
}
