package session_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// serve is a daemon in a process of its own, which says on its standard output what happens.
func serve(path string) int {
	var v *session.Server
	v, err := session.New(session.Config{Node: "n", Version: "test", Epoch: 1, Events: func(ev transfer.Event) {
		switch ev := ev.(type) {
		case transfer.SessionOpened:
			fmt.Println("opened:", ev.Owner)
		case transfer.SessionClosed:
			fmt.Println("closed:", ev.Cause.Text)
			go v.SessionDrained(ev.Session)
		}
	}})
	if err != nil {
		return 1
	}
	l, err := sys.ListenSeqpacket(path, sys.ListenOptions{})
	if err != nil {
		return 1
	}
	served := make(chan error, 1)
	go func() { served <- v.Serve(l) }()
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	if v.Close() != nil || <-served != nil {
		return 1
	}
	return 0
}

// TestAcrossPidNamespaces: a client whose process the daemon cannot see is somebody all the same, and the end of its connection
// is its end.
func TestAcrossPidNamespaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=serve:"+path)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	in, err := cmd.StdinPipe()
	noErr(t, err)
	out, err := cmd.StdoutPipe()
	noErr(t, err)
	if err := cmd.Start(); errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL) {
		t.Skipf("no pid namespace can be made: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() {
		noErr(t, in.Close())
		if err := cmd.Wait(); err != nil {
			t.Errorf("daemon: %v", err)
		}
	}()
	lines := bufio.NewScanner(out)
	want := func(text string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), text) {
			t.Fatalf("the daemon says %q, want %q", lines.Text(), text)
		}
	}
	want("ready")
	c, err := sessiontest.Dial(path, sessiontest.Options{Engine: "e"})
	noErr(t, err)
	want(fmt.Sprintf("opened: uid %d, not visible", os.Getuid()))
	noErr(t, c.Ping())
	c.Kill()
	want("closed: its process ended, or closed the connection")
}
