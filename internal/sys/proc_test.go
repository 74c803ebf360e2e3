package sys

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// fixture writes one file of a /proc/PID directory and returns the root.
func fixture(t *testing.T, name, content string) string {
	t.Helper()
	root := t.TempDir()
	noErr(t, os.Mkdir(filepath.Join(root, "17"), 0o755))
	noErr(t, os.WriteFile(filepath.Join(root, "17", name), []byte(content), 0o600))
	return root
}

func TestStartTime(t *testing.T) {
	const tail = " S 1 17 17 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654321 10 11 12\n"
	for _, comm := range []string{"(python3)", "(a) b (c)", "())"} {
		got, err := StartTime(fixture(t, "stat", "17 "+comm+tail), 17)
		if err != nil || got != 987654321 {
			t.Errorf("command %q: %d, %v", comm, got, err)
		}
	}
	for _, bad := range []string{"", "17 (x", "17 (x) S 1 2", "17 (x) S 1 17 17 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 -5 1"} {
		if got, err := StartTime(fixture(t, "stat", bad), 17); err == nil {
			t.Errorf("stat %q: start time %d", bad, got)
		}
	}
	self, err := StartTime(ProcRoot, os.Getpid())
	noErr(t, err)
	parent, err := StartTime(ProcRoot, os.Getppid())
	noErr(t, err)
	if self < parent {
		t.Errorf("this process began at %d, before its parent at %d", self, parent)
	}
}

func TestCgroup(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"unified", "0::/system.slice/kvpiped.service\n", "/system.slice/kvpiped.service"},
		{"root", "0::/\n", "/"},
		{"hybrid, docker", "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n0::/\n", "/docker/abc"},
		{"hybrid, systemd", "5:memory:/user.slice\n1:name=systemd:/user.slice/s.scope\n0::/user.slice/s.scope\n", "/user.slice/s.scope"},
		{"memory before cpu", "9:cpu:/a\n8:memory,hugetlb:/b\n7:pids:/c\n", "/b"},
		{"only others", "9:cpu:/a\n8:blkio:/b\n", "/a"},
		{"v1 root", "9:name=systemd:/\n8:pids:/\n", "/"},
		{"colon in path", "0::/machine/x:y\n", "/machine/x:y"},
	} {
		got, err := Cgroup(fixture(t, "cgroup", c.file), 17)
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "nonsense\n", "0:/x\n"} {
		if got, err := Cgroup(fixture(t, "cgroup", bad), 17); err == nil {
			t.Errorf("file %q: cgroup %q", bad, got)
		}
	}
	if got, err := Cgroup(ProcRoot, os.Getpid()); err != nil || got == "" {
		t.Errorf("this process: %q, %v", got, err)
	}
}

// TestExitingMainThread: a process whose main thread alone has ended runs on, in the memory that its other threads have.
func TestExitingMainThread(t *testing.T) {
	const gone, there = "0 0 0 0 0 0 0\n", "2700 358 330 1 0 2138 0\n"
	for other, want := range map[string]bool{there: false, gone: true} {
		root := fixture(t, "statm", gone)
		for tid, statm := range map[string]string{"17": gone, "18": gone, "19": other} {
			dir := filepath.Join(root, "17", "task", tid)
			noErr(t, os.MkdirAll(dir, 0o755))
			noErr(t, os.WriteFile(filepath.Join(dir, "statm"), []byte(statm), 0o600))
		}
		if got, err := Exiting(root, 17); err != nil || got != want {
			t.Errorf("exiting: %v, %v, where another thread's statm is %q", got, err, other)
		}
	}
}

// TestExiting: a process whose memory is gone is on its way out, also while it waits to be waited for.
func TestExiting(t *testing.T) {
	for statm, want := range map[string]bool{"0 0 0 0 0 0 0\n": true, "2048 512 256 1 0 300 0\n": false} {
		if got, err := Exiting(fixture(t, "statm", statm), 17); err != nil || got != want {
			t.Errorf("statm %q: exiting %v, %v", statm, got, err)
		}
	}
	if got, err := Exiting(t.TempDir(), 17); err != nil || !got {
		t.Error("a process that is not there counts as running", err)
	}
	if got, err := Exiting(ProcRoot, os.Getpid()); err != nil || got {
		t.Error("this process counts as exiting", err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	noErr(t, cmd.Start())
	pidfd, err := PidfdOpen(cmd.Process.Pid)
	noErr(t, err)
	defer Close(pidfd)
	noErr(t, cmd.Process.Kill())
	poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for n := 0; n < 1; { // -1 after a signal
		n, err = unix.Poll(poll, 20_000)
		if err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
	}
	if got, err := Exiting(ProcRoot, cmd.Process.Pid); err != nil || !got {
		t.Error("a zombie counts as running", err)
	}
	_ = cmd.Wait()
}
