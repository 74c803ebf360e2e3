package house

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSummary runs the runner of `make test` with a make of its own.
func TestSummary(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"scripts", "build"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("../../scripts/test.sh")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "scripts/test.sh"), string(text))
	write(t, filepath.Join(dir, "make"), `#!/bin/sh
case $1 in
good | build) echo 'part passed: 7 tests' ;;
none) echo 'part skipped: there is nothing' ;;
some) echo 'skip: TestX: no device' ;;
bad) echo 'it broke'; exit 2 ;;
late) exec sleep 100 ;;
killed) kill -KILL $$ ;;
one) echo >"$0.fifo" ;; # ends when the other has begun
other) read _ <"$0.fifo" ;;
esac
`)
	for _, name := range []string{"make", "scripts/test.sh"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "make.fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KVPIPE_PARTS", "2")
	t.Setenv("MAKE", filepath.Join(dir, "make"))

	for _, c := range []struct {
		parts string
		limit string // seconds
		want  bool
		says  []string
	}{
		{"build good", "100", true, []string{"7 tests", "test: ok"}},
		{"good none some", "100", true, []string{"there is nothing", "1 skip: TestX: no device", "test: ok"}},
		{"bad good", "100", false, []string{"it broke", "good           ok", "test: FAILED", ": bad"}},
		{"build one other", "100", true, []string{"\none            ok", "test: ok"}},
		{"late", "1", false, []string{"ran longer than 1 s", "test: FAILED"}},
		{"killed", "100", false, []string{"ran longer than 100 s, or was killed", "test: FAILED"}},
	} {
		t.Setenv("KVPIPE_PART_LIMIT", c.limit)
		out, ok := script(t, "", filepath.Join(dir, "scripts/test.sh"), strings.Fields(c.parts)...)
		if ok != c.want {
			t.Errorf("%s: passed %v, want %v\n%s", c.parts, ok, c.want, out)
		}
		for _, says := range c.says {
			if !strings.Contains(out, says) {
				t.Errorf("%s: %q is missing in:\n%s", c.parts, says, out)
			}
		}
	}
}
