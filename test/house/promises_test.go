package house

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPromisesNameTests: every test that docs/promises.md names is there.
func TestPromisesNameTests(t *testing.T) {
	named := regexp.MustCompile("`([Tt]est_?[A-Za-z_0-9]+)`").FindAllStringSubmatch(read(t, "../../docs/promises.md"), -1)
	if len(named) < 30 {
		t.Fatalf("%d names of tests in docs/promises.md", len(named))
	}
	there := testNames(t, "../..")
	for _, n := range named {
		if !there[n[1]] {
			t.Errorf("docs/promises.md names %s, which no test file has", n[1])
		}
	}
}

// TestRunsNameTests: what the makefiles run by a name of tests is there; go says that there is none and that all went well.
func TestRunsNameTests(t *testing.T) {
	parts, err := filepath.Glob("../../scripts/mk/*.mk")
	if err != nil {
		t.Fatal(err)
	}
	there, runs := testNames(t, "../.."), 0
	for _, part := range parts {
		for _, run := range regexp.MustCompile(`-(?:test\.)?run[ =]'?([^ ']+)`).FindAllStringSubmatch(strings.ReplaceAll(read(t, part), "$$", "$"), -1) {
			runs++
			named := regexp.MustCompile(run[1])
			if !slices.ContainsFunc(slices.Collect(maps.Keys(there)), named.MatchString) {
				t.Errorf("%s runs %s, which is the name of no test", part, run[1])
			}
		}
	}
	if runs < 2 {
		t.Errorf("%d runs of tests by name", runs)
	}
}

// testNames finds the functions that are tests, in Go and Python.
func testNames(t *testing.T, root string) map[string]bool {
	t.Helper()
	defined := regexp.MustCompile(`(?m)^(?:func|def) ([Tt]est\w+)\(`)
	names := map[string]bool{}
	err := filepath.WalkDir(filepath.Clean(root), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "build" || strings.HasPrefix(d.Name(), ".") && d.Name() != ".."):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(d.Name(), "test_"):
			return nil
		}
		b, err := os.ReadFile(path)
		for _, m := range defined.FindAllSubmatch(b, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
