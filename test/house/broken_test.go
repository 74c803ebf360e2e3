package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestABrokenTreeIsNotAnEmptyOne: go lists no packages of either.
func TestABrokenTreeIsNotAnEmptyOne(t *testing.T) {
	tree := makefiles(t, nil)
	golang := filepath.Join(tree, "go")
	for _, c := range []struct {
		name, list, test string // what go does when it is to list and to test
		skipped          bool   // by all parts, which fail otherwise
	}{
		{"a file that go cannot read", "echo 'a.go:1:1: expected package' >&2; exit 1", "", false},
		{"some that it cannot read", "echo m/a; echo m/test/b; exit 1", "", false},
		{"a test that does not compile", "echo m/a; echo m/test/b", `echo '{"Action":"fail","Package":"m/a"}'; exit 1`, false},
		{"no packages", "", "", true},
	} {
		write(t, golang, "#!/bin/sh\ncase $1 in\nlist)\n"+c.list+"\n;;\ntest)\n"+c.test+"\n;;\nesac\n")
		if err := os.Chmod(golang, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("GO", golang)
		for _, part := range []string{"unit", "e2e"} {
			out, err := makes(tree, "GO="+golang, "-o", "build", "-o", "build/venv/.package", part)
			if (err == nil) != c.skipped || strings.Contains(out, "part skipped") != c.skipped {
				t.Errorf("%s: make %s: %v\n%s", c.name, part, err, out)
			}
		}
		if out, ok := script(t, "", filepath.Join(tree, "scripts/fuzz.sh")); ok {
			t.Errorf("%s: it is fuzzed:\n%s", c.name, out)
		}
	}
}

// TestFuzz: every target of every package has its turn, and one finding fails all.
func TestFuzz(t *testing.T) {
	golang := filepath.Join(t.TempDir(), "go")
	for _, c := range []struct {
		finds string
		want  bool
		says  string
	}{
		{"nothing", true, "fuzz: 4 targets for 3s each, 0 failed"},
		{"FuzzA", false, "fuzz: 4 targets for 3s each, 2 failed FuzzA FuzzA"},
	} {
		write(t, golang, `#!/bin/sh
case "$*" in
list*) echo m/a; echo m/b ;;
*-list*) echo FuzzA; echo FuzzB; echo 'ok m' ;;
*-fuzztime*) ! echo "$*" | grep -q '`+c.finds+`' ;;
esac
`)
		if err := os.Chmod(golang, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("GO", golang)
		t.Setenv("FUZZTIME", "3s")
		if out, ok := script(t, "", "fuzz.sh"); ok != c.want || !strings.Contains(out, c.says) {
			t.Errorf("%s is found, passed: %v\n%s", c.finds, ok, out)
		}
	}
}
