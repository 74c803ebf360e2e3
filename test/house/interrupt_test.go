package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestInterrupted: who ends the tests ends what they run, which timeout has put into process groups that no terminal reaches.
func TestInterrupted(t *testing.T) {
	// A timeout that is ended in the moment in which it has made its child, and does not know it yet, leaves it.
	const long = "until grep -q '^State:.S' /proc/$PPID/status; do :; done; exec cat fifo\n"
	tree := makefiles(t, map[string]string{"test/rigs/long.sh": long, "bin/make": "#!/bin/sh\n[ $1 != test ] || exit 0\n" + long})
	if err := os.CopyFS(filepath.Join(tree, ".ci"), os.DirFS("../../.ci")); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(tree, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(tree, "bin")+":"+os.Getenv("PATH"))
	t.Setenv("MAKE", "make")
	for _, words := range [][]string{{".ci/run"}, {"scripts/test.sh", "long"}} {
		for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			cmd := exec.Command("env", append([]string{"--default-signal"}, words...)...) // whatever those who run this test ignore
			cmd.Dir = tree
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(fifo, os.O_WRONLY, 0) // once it runs
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			n, ended := -1, []unix.PollFd{{Fd: int32(f.Fd())}} // nobody reads any more
			for err = unix.EINTR; err == unix.EINTR; {
				n, err = unix.Poll(ended, 30_000)
			}
			if n != 1 {
				t.Errorf("%s goes on after %s: %v", words, sig, err)
			}
			f.Close()
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 130 {
				t.Errorf("%s after %s: exit code %d", words, sig, code)
			}
		}
	}
}
