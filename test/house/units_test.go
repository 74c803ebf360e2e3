package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const units = "../../packaging/systemd"

func analyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skipf("the package systemd is not here: %v", err)
	}
	out, err := exec.Command(tool, args...).CombinedOutput()
	return string(out), err
}

// TestUnitExposure: the service leaves little open to who takes over the daemon. --threshold counts in tenths.
func TestUnitExposure(t *testing.T) {
	service := filepath.Join(units, "kvpiped.service")
	if out, err := analyze(t, "security", "--offline=true", "--threshold=30", service); err != nil {
		t.Errorf("more than 3.0: %v\n%s", err, out)
	}
	open := filepath.Join(t.TempDir(), "kvpiped.service")
	write(t, open, without(t, service, "NoNewPrivileges=", "CapabilityBoundingSet=", "SystemCall", "Protect", "Restrict", "User="))
	if out, err := analyze(t, "security", "--offline=true", "--threshold=30", open); err == nil {
		t.Errorf("without its sandbox it passes too:\n%s", out)
	}
}

// TestUnitAllowsALaterDriver: systemd looks names of drivers up when the service starts. GPUs are allowed by number, and so also when
// their driver is loaded afterwards.
func TestUnitAllowsALaterDriver(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(units, "kvpiped.service"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"DevicePolicy=closed", "DeviceAllow=char-195 rw"} {
		if !strings.Contains(string(b), "\n"+line+"\n") {
			t.Errorf("the unit has no line %q", line)
		}
	}
}

// TestUnitLeavesEnginesTheirMemory: engines may run with the daemon's group as theirs, and so may what they have in /dev/shm. It is not to
// go when the daemon is restarted.
func TestUnitLeavesEnginesTheirMemory(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(units, "kvpiped.service"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "RemoveIPC=") || strings.HasPrefix(line, "DynamicUser=") { // which implies the other
			t.Errorf("%sremoves what belongs to the group when the service stops", line)
		}
	}
}

// TestUnitsVerify: systemd finds nothing in the units that it does not know.
func TestUnitsVerify(t *testing.T) {
	dir := t.TempDir()
	all, err := filepath.Glob(filepath.Join(units, "kvpiped*"))
	if err != nil || len(all) != 3 {
		t.Fatalf("units: %v, %v", all, err)
	}
	args := []string{"verify", "--man=no"}
	for _, unit := range all {
		b, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.Base(unit))
		write(t, to, strings.ReplaceAll(string(b), "/usr/bin/kvpiped", "/bin/true")) // which is installed
		args = append(args, to)
	}
	if out, err := analyze(t, args...); err != nil || strings.Contains(out, dir) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	broken := filepath.Join(dir, "kvpiped.service")
	write(t, broken, "[Service]\nExecStart=/bin/true\nNoNewPrivilege=yes\n")
	if out, _ := analyze(t, "verify", "--man=no", broken); !strings.Contains(out, "NoNewPrivilege") {
		t.Errorf("a misspelt key passes:\n%s", out)
	}
}

// TestReloadType: the drop-in is there for the versions of systemd that know what it says, and goes when an older one comes, or with the
// package. What others have put beside it stays.
func TestReloadType(t *testing.T) {
	dir := t.TempDir()
	conf, err := os.ReadFile(filepath.Join(units, "notify-reload.conf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"bin", "usr/share/kvpipe"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "usr/share/kvpipe/notify-reload.conf"), string(conf))
	tool, folder := filepath.Join(dir, "bin/systemctl"), filepath.Join(dir, "usr/lib/systemd/system/kvpiped.service.d")
	site := filepath.Join(folder, "site.conf")
	for i, c := range []struct {
		says, argument string
		want           bool
	}{
		{"systemd 252 (252.38-1~deb12u1)", "", false}, {"systemd 253 (253)", "", true}, {"systemd 257 (257.7-1)", "remove", false},
		{"systemd 257 (257.7-1)", "", true}, {"systemd 252 (252)", "", false}, {"systemd 257 (257.7-1)", "", true}, {"", "remove", false},
	} {
		if i == 4 {
			write(t, site, "[Service]\n")
		}
		write(t, tool, "#!/bin/sh\necho '"+c.says+"'\n")
		if err := os.Chmod(tool, 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", filepath.Join(units, "reload-type.sh"), c.argument)
		cmd.Env = []string{"PATH=" + filepath.Join(dir, "bin") + ":/usr/bin:/bin", "DESTDIR=" + dir}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", c.says, err, out)
		}
		got, err := os.ReadFile(filepath.Join(folder, "notify-reload.conf"))
		if (err == nil) != c.want || c.want && string(got) != string(conf) {
			t.Errorf("%q: %q, %v", c.says, got, err)
		}
	}
	if err := os.Remove(site); err != nil {
		t.Errorf("what others have put there: %v", err)
	}
}

// without returns a file's text without the lines that begin with one of the words.
func without(t *testing.T, path string, words ...string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
lines:
	for _, l := range strings.Split(string(b), "\n") {
		for _, w := range words {
			if strings.HasPrefix(l, w) {
				continue lines
			}
		}
		kept = append(kept, l)
	}
	return strings.Join(kept, "\n")
}
