package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// script runs one of scripts/, or the one at an absolute path, with stdin and returns what it printed and
// whether it ended with 0.
func script(t *testing.T, stdin, name string, args ...string) (string, bool) {
	t.Helper()
	path := name
	if !filepath.IsAbs(name) {
		path = filepath.Join("../../scripts", name)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatalf("%s: %v", name, err)
	}
	return string(out), err == nil
}

// compile builds a shared library from source and returns its path.
func compile(t *testing.T, name, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	input, output := filepath.Join(dir, "a.c"), filepath.Join(dir, name)
	if err := os.WriteFile(input, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	gcc(t, append([]string{"-shared", "-fPIC", "-o", output, input}, flags...))
	return output
}

// program compiles an executable.
func program(t *testing.T, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	input, output := filepath.Join(dir, "a.c"), filepath.Join(dir, "a")
	if err := os.WriteFile(input, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	gcc(t, append([]string{"-o", output, input}, flags...))
	return output
}

func gcc(t *testing.T, args []string) {
	t.Helper()
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
}
