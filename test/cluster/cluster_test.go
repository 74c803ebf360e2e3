package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

// ends is how the programs end that this one plays: when they are asked to, or before.
const ends = "KVPIPE_CLUSTER_ENDS"

func TestMain(m *testing.M) {
	if how := os.Getenv(ends); how != "" && filepath.Base(os.Args[0]) != filepath.Base(os.Getenv("KVPIPE_CLUSTER_TEST")) {
		play(filepath.Base(os.Args[0]), how)
	}
	if os.Getenv(ends) != "" {
		leak.Main(Built(m))
	}
	leak.Main(m)
}

// play is a daemon or an engine that does nothing but end.
func play(name, how string) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	fmt.Fprintln(os.Stderr, "msg=ready")
	fmt.Println("ready")
	who, by, _ := strings.Cut(how, " ")
	if who == name && by == "signal" {
		signal.Reset()
		_ = syscall.Kill(os.Getpid(), syscall.SIGABRT)
		select {}
	}
	if who == name && by == "panic" {
		panic("nobody asked for it")
	}
	<-asked
	if who == name && by == "status" {
		os.Exit(1)
	}
	if who == name && by == "late" {
		panic("on its way out")
	}
	os.Exit(0)
}

// TestWhoEndsByItself: a daemon or an engine that crashes does not go by as one that the test has ended, and one that is asked to go goes well.
func TestWhoEndsByItself(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"kvpiped", "test-engine"} {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for how, want := range map[string]string{
		"nobody": "", "test-engine signal": "decode on a has ended by itself", "test-engine panic": "decode on a has ended by itself",
		"kvpiped late": "node a ended badly", "kvpiped status": "node a ended badly", "kvpiped panic": "node a ended badly",
	} {
		child := exec.Command(self, "-test.run=^TestPlayed$", "-test.v")
		child.Env = append(os.Environ(), "KVPIPE_BIN="+bin, ends+"="+how, "KVPIPE_CLUSTER_TEST="+self)
		out, err := child.CombinedOutput()
		if (err == nil) != (want == "") || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, want %q in:\n%s", how, err, want, out)
		}
	}
}

// TestBesideAServingDaemon: nodes do not need the port of a kvpiped that serves the machine on which they are tested.
func TestBesideAServingDaemon(t *testing.T) {
	if addr := New(t).Node("a").Addr; strings.HasSuffix(addr, ":7650") {
		t.Errorf("a node listens at %s", addr)
	}
}

// TestPlayed is what TestWhoEndsByItself runs, with programs that are played; without them there is nothing to see.
func TestPlayed(t *testing.T) {
	how := os.Getenv(ends)
	if how == "" {
		return
	}
	n := New(t).Node("a").Start()
	e := NewEngine(t, "decode", n, nil)
	e.Start(0)
	switch {
	case strings.HasPrefix(how, "test-engine"):
		<-e.exited
	case how == "kvpiped panic":
		<-n.exited
		return
	}
	e.Kill()
	n.Stop()
}
