package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// makefiles is a tree of nothing but what make reads and runs, and the given files.
func makefiles(t *testing.T, files map[string]string) string {
	t.Helper()
	tree := t.TempDir()
	for _, folder := range []string{"scripts", "test/vllm"} {
		if err := os.CopyFS(filepath.Join(tree, folder), os.DirFS("../../"+folder)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"Makefile", "VERSION"} {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(tree, name), string(text))
	}
	for name, text := range files {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, path, text)
		if strings.HasPrefix(text, "#!") {
			if err := os.Chmod(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	return tree
}

func makes(tree string, args ...string) (string, error) {
	out, err := exec.Command("make", append([]string{"-C", tree}, args...)...).CombinedOutput()
	return string(out), err
}

// TestAbandonedSources: what was made of a source that is gone since is made again without it, and of the same sources nothing is.
func TestAbandonedSources(t *testing.T) {
	tree := makefiles(t, map[string]string{
		"capi/a.c":              "int f(void);\nint f(void) { return 1; }\n",
		"capi/b.c":              "int g(void);\nint g(void) { return 2; }\n",
		"capi/tests/help.c":     "int h(void);\nint h(void) { return 3; }\n",
		"capi/kvpipe.map":       "{ local: *; };\n",
		"python/pyproject.toml": "",
		"python/kvpipe/a.py":    "",
		"python/kvpipe/b.py":    "",
		"build/venv/.ready":     "",
		"build/venv/bin/pip":    "#!/bin/sh\nls python/kvpipe\n",
	})
	products := []string{"build/lib/libkvpipe.so.0", "build/lib/libkvpipe.a", "build/test/asan/lib.a", "build/venv/.package"}
	build := func() (linked, installed bool) {
		t.Helper()
		out, err := makes(tree, append([]string{"-o", "build/venv/.ready"}, products...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.Contains(out, "CC   build/lib/libkvpipe.so.0\n"), strings.Contains(out, "a.py\n")
	}
	for _, gone := range []string{"", "capi/b.c", "python/kvpipe/b.py", "capi/tests/help.c"} {
		if err := os.Remove(filepath.Join(tree, gone)); err != nil && gone != "" {
			t.Fatal(err)
		}
		python := strings.HasPrefix(gone, "python")
		if linked, installed := build(); gone != "" && (linked == python || installed != python) {
			t.Errorf("without %s: linked %v, installed %v", gone, linked, installed)
		}
		if linked, installed := build(); linked || installed {
			t.Errorf("without %s, again: linked %v, installed %v", gone, linked, installed)
		}
	}
	for _, archive := range products[1:3] {
		out, err := exec.Command("nm", "--defined-only", "--format=just-symbols", filepath.Join(tree, archive)).Output()
		names := strings.Fields(string(out))
		if err != nil || !slices.Contains(names, "f") || slices.Contains(names, "g") || slices.Contains(names, "h") {
			t.Errorf("%s has %q, %v", archive, names, err)
		}
	}
}

// TestWhatIsMissingComesFirst: who types `make demo` on a fresh machine has a compiler and no C library's headers, perhaps.
func TestWhatIsMissingComesFirst(t *testing.T) {
	tree := makefiles(t, map[string]string{"capi/a.c": "", "capi/kvpipe.map": ""})
	for _, target := range []string{"demo", "bench"} {
		out, err := makes(tree, "-n", target)
		deps, compiled := strings.Index(out, "scripts/deps.sh build"), strings.Index(out, "capi/a.c")
		if err != nil || deps < 0 || compiled < deps {
			t.Errorf("make %s installs at %d and compiles at %d: %v\n%s", target, deps, compiled, err, out)
		}
	}
}

// TestToolsOfOnesOwn: a compiler may be two words, and go, with what comes beside it, in no folder of PATH.
func TestToolsOfOnesOwn(t *testing.T) {
	bin := fakeApt(t, "", 0)
	write(t, filepath.Join(bin, "installed"), "") // nothing is missing
	tree := makefiles(t, map[string]string{"opt/go": "#!/bin/sh\necho go1.26\n", "opt/gofmt": "#!/bin/sh\necho formats\n"})
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	golang := "GO=" + filepath.Join(tree, "opt/go")
	if out, err := makes(tree, "build-deps", golang, "CC=env gcc", "PYTHON=fakepython"); err != nil || strings.Contains(out, "apt-get") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := makes(tree, golang, "--eval", "x: ; @gofmt", "x"); err != nil || !strings.Contains(out, "formats\n") {
		t.Errorf("another gofmt: %v\n%s", err, out)
	}
}
