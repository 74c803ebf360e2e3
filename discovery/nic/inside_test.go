package nic

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const insideKey = "KVPIPE_TEST_INSIDE"

// inside runs the calling test again in a process with a network and mounts of its own, whose sysfs is that network's. It returns true there,
// with the root of that sysfs, and false here, when that process has ended well; when it has skipped the test, so does this one.
func inside(t *testing.T) (sys string, in bool) {
	t.Helper()
	if os.Getenv(insideKey) == t.Name() {
		return ownSys(t), true
	}
	if os.Getuid() != 0 {
		t.Skip("not root: a network namespace of its own needs CAP_SYS_ADMIN")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), insideKey+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("no network namespaces here: %v", err)
	}
	if err != nil {
		t.Fatalf("inside: %v\n%s", err, out)
	}
	if strings.Contains(string(out), "--- SKIP: "+t.Name()) {
		t.Skipf("inside: %s", out)
	}
	return "", false
}

func ownSys(t *testing.T) string {
	t.Helper()
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	sys := filepath.Join(t.TempDir(), "sys")
	if err := os.Mkdir(sys, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("sysfs", sys, "sysfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(sys, syscall.MNT_DETACH) })
	return sys
}
