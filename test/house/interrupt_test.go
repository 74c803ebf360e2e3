package house

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestInterrupted: who ends the tests ends what they run, which timeout has put into process groups that no terminal reaches.
func TestInterrupted(t *testing.T) {
	tree := makefiles(t, map[string]string{"test/rigs/long.sh": "exec >fifo\nexec sleep 100\n", "bin/make": "#!/bin/sh\n[ $1 = test ] || { exec >fifo; exec sleep ${LONG:-100}; }\n"})
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
			f, err := os.Open(fifo) // once it runs
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 130 {
				t.Errorf("%s after %s: exit code %d", words, sig, code)
			}
			if _, err := io.ReadAll(f); err != nil { // until it has ended
				t.Fatal(err)
			}
			f.Close()
			if took := time.Since(began); took > 50*time.Second {
				t.Errorf("%s goes on for %s after %s", words, took, sig)
			}
		}
	}
}
