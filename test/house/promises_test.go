package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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
