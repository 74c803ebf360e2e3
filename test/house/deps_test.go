package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestDepsOfPurposes: on a machine that has next to nothing each purpose brings what it needs, git only for a tree that has commits.
func TestDepsOfPurposes(t *testing.T) {
	bin := fakeApt(t, "", 0)
	for _, tool := range []string{"bash", "dirname", "mktemp", "rm", "head", "sort", "tr", "id", "flock", "mkdir", "wc", "env", "cat", "touch", "tail", "uname", "sh"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("../../scripts/deps.sh")
	if err != nil {
		t.Fatal(err)
	}
	tree := t.TempDir()
	deps := filepath.Join(tree, "scripts/deps.sh")
	if err := os.Mkdir(filepath.Dir(deps), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(deps, text, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv("GO", "fakego")
	t.Setenv("PYTHON", "fakepython")
	installs := func(purpose string) []string {
		out, _ := script(t, "", deps, purpose) // which misses them still, as nothing was installed
		_, list, found := strings.Cut(out, "apt-get install ")
		if !found {
			t.Fatalf("%s installs nothing:\n%s", purpose, out)
		}
		list, _, _ = strings.Cut(list, "\n")
		return strings.Fields(list)
	}
	for _, git := range []bool{false, true} {
		for purpose, want := range map[string]bool{"build": false, "test": git, "cross": git, "packages": git} {
			got := installs(purpose)
			if !slices.Contains(got, "libc6-dev") || slices.Contains(got, "git") != want || slices.Contains(got, "g++") != (purpose == "test") {
				t.Errorf("%s, a tree with commits: %v: installs %v", purpose, git, got)
			}
		}
		write(t, filepath.Join(tree, ".git"), "")
	}
}

// TestDepsWaitsForTheListsOfApt: an update of the machine's own holds their lock for a while, and apt-get does not wait for it.
func TestDepsWaitsForTheListsOfApt(t *testing.T) {
	const locked = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)"
	for _, c := range []struct {
		name, apt string
		times     int // that an update fails
		want      bool
		says      string
	}{
		{"free", "", 0, true, "apt-get install python3-venv"},
		{"held twice", locked, 2, true, "apt-get install python3-venv"},
		{"held for ever", locked, 1000, false, "another apt-get has had the lock for five minutes"},
		{"a mirror that is gone", "E: Failed to fetch", 1000, false, "E: Failed to fetch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bin := fakeApt(t, c.apt, c.times)
			t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			t.Setenv("GO", filepath.Join(bin, "fakego"))
			t.Setenv("PYTHON", filepath.Join(bin, "fakepython"))
			out, ok := script(t, "", "deps.sh", "build")
			if ok != c.want || !strings.Contains(out, c.says) {
				t.Errorf("done: %v, want %v with %q:\n%s", ok, c.want, c.says, out)
			}
		})
	}
}

// fakeApt is a folder of programs on a machine without python3-venv, whose apt-get says that so many times instead of an update.
// Nothing in it takes time.
func fakeApt(t *testing.T, says string, times int) string {
	t.Helper()
	bin := t.TempDir()
	for name, text := range map[string]string{
		"apt-get": `case " $* " in
*' install '*) touch ` + bin + `/installed ;;
*) n=$(wc -l <` + bin + `/updates); echo >>` + bin + `/updates
	[ $n -ge ` + strconv.Itoa(times) + ` ] || { echo '` + says + `'; exit 100; } ;;
esac`,
		"sudo":       `[ "$1" != -n ] || shift; exec "$@"`,
		"sleep":      "",
		"fakego":     "echo go1.26",
		"fakepython": `case $* in *ensurepip*) [ -e ` + bin + `/installed ] ;; *) echo 3.11.0 ;; esac`,
		"updates":    "",
	} {
		if name != "updates" {
			text = "#!/bin/sh\n" + text + "\n"
		}
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}
