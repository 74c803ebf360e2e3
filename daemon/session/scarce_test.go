package session_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/kvpipe/kvpipe/daemon/memory"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// noMoreFiles keeps this process, in which client and daemon are, from opening any until the end of the test, or until more is called.
func noMoreFiles(t *testing.T) (more func()) {
	t.Helper()
	var was syscall.Rlimit
	noErr(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	more = func() { noErr(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)) }
	t.Cleanup(more)
	noErr(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 1, Max: was.Max})) // those that are open stay
	return more
}

// TestADaemonWithoutDescriptors refuses the one request that needs one, and says so, however often it is asked. The session goes on.
func TestADaemonWithoutDescriptors(t *testing.T) {
	var log lines
	n := start(t, func(c *session.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	c := n.dial(sessiontest.Options{})
	fd, err := sys.MemfdCreate("region", 4096, sys.MemfdOptions{Prefault: true, Seals: sys.SealShrink | sys.SealGrow})
	noErr(t, err)
	defer sys.Close(fd)
	noErr(t, c.Ping())
	register := ring.Append(nil, &ring.Register{Bytes: 4096, Kind: 1})
	more := noMoreFiles(t)
	for range 2 {
		_, err = c.Request(ring.CtlRegister, register, fd)
		says(t, err, transfer.Quota, "raise its limit of open files")
	}
	noErr(t, c.Ping())
	if told := strings.Count(log.String(), "for what a session asks"); told != 1 {
		t.Errorf("the log says it %d times, want once", told)
	}
	more()
	_, err = c.Request(ring.CtlRegister, register, fd)
	noErr(t, err)
	noErr(t, c.Close())
}

// TestAConnectionThatCannotBeAccepted for a while, for want of an epoll watch or because a security module forbids it, is served then.
func TestAConnectionThatCannotBeAccepted(t *testing.T) {
	for _, short := range []sessiontest.Short{{Call: "epoll_ctl", Lack: syscall.ENOSPC}, {Call: "accept4", Lack: syscall.EPERM}, {Call: "accept4", Lack: syscall.EACCES}} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := sys.ListenSeqpacket(path, sys.ListenOptions{})
		noErr(t, err)
		v, err := session.New(session.Config{Node: "n0", Epoch: 7, Events: func(transfer.Event) {}})
		noErr(t, err)
		served := make(chan error, 1)
		short.Listener = l
		go func() { served <- v.Serve(&short) }()
		c, err := sessiontest.Dial(path, sessiontest.Options{Engine: "e"})
		if err == nil {
			c.Kill()
		}
		noErr(t, v.Close())
		if err := errors.Join(err, <-served); err != nil {
			t.Errorf("%s: %v: %v", short.Call, short.Lack, err)
		}
	}
}

// TestAStateThatCannotBeReadForWantOfADescriptor is as good as it was: the daemon does not start without it, nor set it aside.
func TestAStateThatCannotBeReadForWantOfADescriptor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	noErr(t, os.WriteFile(path, []byte(`{"version":1}`), 0o600))
	more := noMoreFiles(t)
	v, err := session.New(session.Config{Node: "n0", Epoch: 7, Events: func(transfer.Event) {}, State: path})
	more()
	if err == nil {
		noErr(t, v.Close())
	}
	if !errors.Is(err, syscall.EMFILE) {
		t.Errorf("the daemon starts: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// TestAProcessThatDiesWhileThereAreNoDescriptors cannot be looked at, and is waited for all the same: its finished offers outlive it. One that runs
// is not waited for when it can be looked at.
func TestAProcessThatDiesWhileThereAreNoDescriptors(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=hold:")
	_, err := cmd.StdinPipe()
	noErr(t, err)
	noErr(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	fd, err := sys.PidfdOpen(cmd.Process.Pid)
	noErr(t, err)
	pidfd, err := sys.PollFile(fd, "pidfd")
	noErr(t, err)
	defer pidfd.Close()
	if session.Died(cmd.Process.Pid, pidfd, nil) {
		t.Error("it has died, and runs")
	}
	noMoreFiles(t)
	synctest.Test(t, func(t *testing.T) {
		ended, died := make(chan struct{}), make(chan bool, 1)
		go func() { died <- session.Died(cmd.Process.Pid, pidfd, ended) }()
		synctest.Wait() // it has looked, and waits, or has its answer
		noErr(t, cmd.Process.Kill())
		_ = cmd.Wait()
		close(ended)
		if !<-died {
			t.Error("it runs, and has died")
		}
	})
}

// TestWhatADaemonLacks is not held against the client, whose library would take its session for lost where it comes back after a restart.
func TestWhatADaemonLacks(t *testing.T) {
	for _, c := range []struct {
		err    error
		reason transfer.Reason
		says   string
	}{
		{fmt.Errorf("rings: duplicate fd 5: %w", syscall.EMFILE), transfer.Quota, "LimitNOFILE"},
		{fmt.Errorf("rings: %w", syscall.ENFILE), transfer.Quota, "fs.file-max"},
		{fmt.Errorf("%w: map 4096 bytes: %w", memory.ErrInvalid, syscall.ENOMEM), transfer.Quota, "max_map_count"},
		{fmt.Errorf("rings: allocate: %w", syscall.ENOSPC), transfer.Quota, "memory limits"}, // of a memfd: no memory may be promised any more
		{fmt.Errorf("rings: %w", sys.ErrUnpolled), transfer.Quota, "max_user_watches"},
		{fmt.Errorf("%w: map 4096 bytes: %w", memory.ErrInvalid, syscall.EACCES), transfer.Invalid, "map 4096"},
		{fmt.Errorf("%w: identify fd 5: %w: %w", memory.ErrInvalid, syscall.EPERM, sys.ErrForbidden), transfer.Unavailable, "seccomp"},
		{session.Unseen(fmt.Errorf("open pidfd: %w: %w", syscall.EPERM, sys.ErrForbidden)), transfer.Unavailable, "seccomp"},
		{session.Unseen(&fs.PathError{Op: "open", Path: "/proc/7/cgroup", Err: syscall.EMFILE}), transfer.Quota, "LimitNOFILE"},
		{session.Unseen(&fs.PathError{Op: "open", Path: "/proc/7/cgroup", Err: syscall.ENOENT}), transfer.PeerGone, "/proc/7/cgroup"},
	} {
		says(t, &sessiontest.Error{Cause: session.CauseOf(c.err)}, c.reason, c.says)
	}
}
