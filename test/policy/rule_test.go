package policy

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// A rule looks at a source tree and tells what breaks it.
type rule struct {
	name  string
	check func(tree) []violation
	// Each of bad is a tree that the rule has to object to, each of good one
	// that it has to let pass; both are written as path -> content.
	bad, good []map[string]string
}

// A violation is a place and what is wrong there.
type violation struct {
	path string
	line int // 0: the file as a whole
	text string
}

func (v violation) String() string {
	if v.line == 0 {
		return v.path + ": " + v.text
	}
	return fmt.Sprintf("%s:%d: %s", v.path, v.line, v.text)
}

var rules = []rule{
	importRule, doorRule, cgoRule, unsafeRule,
	pureRule, guardRule,
	commentRule, gofmtRule, lengthRule,
	wordRule,
	sleepRule, skipRule, leakRule,
}

func TestTree(t *testing.T) {
	tr, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(tr) < 10 {
		t.Fatalf("only %d files found: looking in the wrong place", len(tr))
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, v := range r.check(tr) {
				t.Error(v)
			}
		})
	}
}

// TestWhatIsNotWritten: what git keeps, and what is built, is nobody's to mend; in a worktree .git is a file.
func TestWhatIsNotWritten(t *testing.T) {
	for _, name := range []string{".git", ".git/config", "build/a.go", "python/kvpipe.egg-info/a", "a.so"} {
		tr, err := load(fstest.MapFS{name: {Data: []byte("gitdir: /wor" + "k/main/.git\n")}, "b/.gitignore": {Data: []byte("c\n")}})
		if err != nil || len(tr) != 1 || tr[0].path != "b/.gitignore" {
			t.Errorf("with %s: %d files, %v", name, len(tr), err)
		}
	}
}

// TestRules is the test of the tests: a rule that no example can break is none.
func TestRules(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			if len(r.bad) == 0 || len(r.good) == 0 {
				t.Fatal("no examples")
			}
			for i, files := range r.bad {
				if len(r.check(parse(t, files))) == 0 {
					t.Errorf("bad example %d passes: %s", i, paths(files))
				}
			}
			for i, files := range r.good {
				if got := r.check(parse(t, files)); len(got) != 0 {
					t.Errorf("good example %d is refused: %v", i, got)
				}
			}
		})
	}
}

func parse(t *testing.T, files map[string]string) tree {
	t.Helper()
	var tr tree
	for path, text := range files {
		f, err := newFile(path, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		tr = append(tr, f)
	}
	return tr
}

func paths(files map[string]string) string {
	var all []string
	for path := range files {
		all = append(all, path)
	}
	return strings.Join(all, " ")
}

// one is an example of a single file.
func one(path, text string) map[string]string { return map[string]string{path: text} }
