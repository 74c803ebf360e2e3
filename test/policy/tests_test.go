package policy

import (
	"bytes"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// sleeps are what waits for time instead of an event, by kind of file.
var sleeps = map[string]*regexp.Regexp{
	".c":  regexp.MustCompile(`\b(usleep|sleep|nanosleep)\(`),
	".py": regexp.MustCompile(`\btime\.sleep\(`),
}

// sleepRule: a test waits for an event. Where time itself is what is tested, a
// bubble of testing/synctest makes it pass at once.
var sleepRule = rule{
	name:  "sleep",
	check: checkSleep,
	bad: []map[string]string{
		one("daemon/a_test.go", "package daemon\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"),
		one("capi/tests/test_a.c", "int main(void) { usleep(10); }\n"),
		one("python/tests/test_a.py", "import time\ntime.sleep(1)\n"),
		one("test/packages/test_a.py", "import time\ntime.sleep(1)\n"),
	},
	good: []map[string]string{
		one("daemon/a.go", "package daemon\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"),
		one("daemon/a_test.go", "package daemon\nimport (\n\"testing/synctest\"\n\"time\"\n)\nfunc f() { time.Sleep(1); synctest.Wait() }\n"),
	},
}

func checkSleep(tr tree) []violation {
	const text = "sleeps; wait for the event instead"
	found := tr.eachGo(func(f *file) []violation {
		if !f.test || f.imported("testing/synctest") {
			return nil
		}
		var found []violation
		f.selectors(func(pos token.Pos, name, sel string) {
			if name == "time" && sel == "Sleep" {
				found = append(found, f.at(pos, text))
			}
		})
		return found
	})
	for _, f := range tr {
		pattern := sleeps[path.Ext(f.path)]
		if pattern == nil || !isTest(f) {
			continue
		}
		for i, line := range bytes.Split(f.text, []byte("\n")) {
			if pattern.Match(line) {
				found = append(found, violation{f.path, i + 1, text})
			}
		}
	}
	return found
}

// isTest says whether a file that is not Go's is of a test: it lies below tests/, or is named as pytest looks for it below test/.
func isTest(f *file) bool {
	in := strings.Split(f.dir(), "/")
	return slices.Contains(in, "tests") || in[0] == "test" && strings.HasPrefix(path.Base(f.path), "test_")
}

// skipRule: a test that does not run says why.
var skipRule = rule{
	name: "skip",
	check: func(tr tree) []violation {
		return tr.eachGo(func(f *file) []violation {
			var found []violation
			ast.Inspect(f.ast, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) > 0 {
					return true
				}
				if s, ok := call.Fun.(*ast.SelectorExpr); ok && f.test && (s.Sel.Name == "Skip" || s.Sel.Name == "SkipNow") {
					found = append(found, f.at(call.Pos(), "skips without a reason"))
				}
				return true
			})
			return found
		})
	},
	bad: []map[string]string{
		one("a_test.go", "package a\nimport \"testing\"\nfunc Test(t *testing.T) { t.Skip() }\n"),
		one("a_test.go", "package a\nimport \"testing\"\nfunc Test(t *testing.T) { t.SkipNow() }\n"),
	},
	good: []map[string]string{
		one("a_test.go", "package a\nimport \"testing\"\nfunc Test(t *testing.T) { t.Skip(\"no memfd\") }\n"),
	},
}

// leakFree are packages whose tests can leak nothing, or look for themselves.
var leakFree = []string{"internal/leak", "internal/version", "test/policy"}

// leakRule: every package with tests ends them with the leak gate.
var leakRule = rule{
	name:  "leak gate",
	check: checkLeak,
	bad:   []map[string]string{one("daemon/ring/a_test.go", "package ring\n")},
	good: []map[string]string{
		{
			"daemon/ring/a_test.go":    "package ring\n",
			"daemon/ring/main_test.go": "package ring\nfunc TestMain(m *testing.M) { leak.Main(m) }\n",
		},
		one("internal/version/a_test.go", "package version\n"),
	},
}

func checkLeak(tr tree) []violation {
	gated := map[string]bool{}
	for _, f := range tr {
		if f.ast == nil || !f.test || f.in(leakFree...) {
			continue
		}
		gated[f.dir()] = gated[f.dir()] || false
		f.selectors(func(_ token.Pos, name, sel string) {
			if name == "leak" && sel == "Main" {
				gated[f.dir()] = true
			}
		})
	}
	var found []violation
	for dir, ok := range gated {
		if !ok {
			found = append(found, violation{path: dir, text: "no TestMain with leak.Main (internal/leak)"})
		}
	}
	return found
}
