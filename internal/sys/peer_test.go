package sys

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

func TestPeerIsThisProcess(t *testing.T) {
	a, b, err := SeqpacketPair()
	noErr(t, err)
	defer a.Close()
	defer b.Close()
	cred, err := PeerCred(a)
	noErr(t, err)
	if cred.PID != os.Getpid() || int(cred.UID) != os.Getuid() || int(cred.GID) != os.Getgid() {
		t.Fatalf("peer %+v", cred)
	}
	fd, err := PeerPidfd(a, cred, ProcRoot)
	noErr(t, err)
	defer func() { noErr(t, Close(fd)) }()
	alive, err := PidfdAlive(fd)
	noErr(t, err)
	if !alive {
		t.Fatal("this process is said to have ended")
	}
}

// sleeper starts a process that lives until its input ends.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", "echo ready; read line")
	out, err := cmd.StdoutPipe()
	noErr(t, err)
	in, err := cmd.StdinPipe()
	noErr(t, err)
	noErr(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	_, err = bufio.NewReader(out).ReadString('\n')
	noErr(t, err)
	return cmd
}

func TestPidfdSeesTheEnd(t *testing.T) {
	cmd := sleeper(t)
	for _, open := range []func() (int, error){
		func() (int, error) { return PidfdOpen(cmd.Process.Pid) },
		func() (int, error) { return pidfdByPID(cmd.Process.Pid, ProcRoot) },
	} {
		fd, err := open()
		noErr(t, err)
		defer func() { noErr(t, Close(fd)) }()
		alive, err := PidfdAlive(fd)
		noErr(t, err)
		if !alive {
			t.Fatal("a running process is said to have ended")
		}
	}
	fd, err := PidfdOpen(cmd.Process.Pid)
	noErr(t, err)
	defer func() { noErr(t, Close(fd)) }()
	noErr(t, PidfdSignal(fd, int(syscall.SIGKILL)))
	if err := cmd.Wait(); err == nil {
		t.Fatal("the killed process ended well")
	}
	alive, err := PidfdAlive(fd)
	noErr(t, err)
	if alive {
		t.Fatal("a killed process is said to run")
	}
	if err := PidfdSignal(fd, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("signal to an ended process: %v, want ESRCH", err)
	}
	if fd, err := pidfdByPID(cmd.Process.Pid, ProcRoot); !errors.Is(err, syscall.ESRCH) {
		_ = Close(fd)
		t.Errorf("pidfd of an ended process: %v, want ESRCH", err)
	}
}

// A process that /proc does not show has not ended for that.
func TestHiddenPeerHasNotEnded(t *testing.T) {
	fd, err := pidfdByPID(os.Getpid(), t.TempDir())
	if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		_ = Close(fd)
		t.Fatalf("%v, want that there is no such file", err)
	}
}

// TestPeerWithoutDescriptors: where the last look at a process lacks a descriptor, that is said, and not only that it has ended.
func TestPeerWithoutDescriptors(t *testing.T) {
	next, err := Dup(0)
	noErr(t, err)
	noErr(t, Close(next))
	var was syscall.Rlimit
	noErr(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	noErr(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(next) + 1, Max: was.Max})) // one more, for the pidfd
	fd, err := pidfdByPID(os.Getpid(), ProcRoot)
	noErr(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
	if !errors.Is(err, syscall.EMFILE) {
		_ = Close(fd)
		t.Fatalf("%v, want EMFILE", err)
	}
}

func TestInvisiblePeerHasNoPidfd(t *testing.T) {
	if fd, err := pidfdByPID(0, ProcRoot); !errors.Is(err, ErrNoPidfd) {
		_ = Close(fd)
		t.Fatalf("%v, want ErrNoPidfd", err)
	}
	if _, err := PidfdAlive(1 << 20); err == nil {
		t.Fatal("a closed pidfd answers")
	}
}
