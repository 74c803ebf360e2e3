package policy

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// pure are the packages without I/O, clock, lock or goroutine.
var pure = []string{"daemon/layout", "daemon/plan", "daemon/transfer", "daemon/match"}

// bounds say which of our own packages a package may import; a package that no
// bound names may import anything but daemon and daemon/driver. Folders stand
// for what lies below them too.
var bounds = []struct {
	from  []string
	may   []string // nil: nothing of ours
	never []string // instead of may: anything but these
	why   string
}{
	{from: pure, may: pure, why: "pure packages know each other alone"},
	{from: []string{"daemon/ring"}, may: []string{"internal"}, why: "rings know bytes, not meaning"},
	{from: []string{"internal"}, may: []string{"internal"}, why: "internal/ lies below everything"},
	{from: []string{"include", "ibverbs", "nccl"}, why: "bindings import nothing of ours"},
	{from: []string{"discovery"}, may: []string{"discovery", "internal"}, why: "discovery knows no daemon"},
	{
		from:  []string{"daemon/session", "daemon/peer", "daemon/admin", "daemon/transport", "daemon/memory"},
		never: []string{"daemon/driver"},
		why:   "the driver imports them, so they know transfer's events and never the driver",
	},
}

// constructors may import the packages that only daemon/ wires up.
var constructors = []string{"cmd", "bench", "test"}

var importRule = rule{
	name:  "imports",
	check: func(tr tree) []violation { return tr.eachGo(checkImports) },
	bad: []map[string]string{
		one("daemon/peer/a.go", "package peer\nimport _ \""+module+"/daemon/driver\"\n"),
		one("daemon/transport/tcp/a.go", "package tcp\nimport _ \""+module+"/daemon/driver\"\n"),
		one("daemon/plan/a.go", "package plan\nimport _ \""+module+"/internal/sys\"\n"),
		one("daemon/ring/a.go", "package ring\nimport _ \""+module+"/daemon/layout\"\n"),
		one("ibverbs/a.go", "package ibverbs\nimport _ \""+module+"/internal/sys\"\n"),
		one("internal/sys/a.go", "package sys\nimport _ \""+module+"/daemon/plan\"\n"),
		one("daemon/metrics/a.go", "package metrics\nimport _ \""+module+"/daemon\"\n"),
		one("daemon/config/a.go", "package config\nimport _ \""+module+"/daemon/driver\"\n"),
	},
	good: []map[string]string{
		one("daemon/peer/a.go", "package peer\nimport _ \""+module+"/daemon/transfer\"\n"),
		one("daemon/peer/a_test.go", "package peer\nimport _ \""+module+"/daemon/driver\"\n"),
		one("daemon/a.go", "package daemon\nimport _ \""+module+"/daemon/driver\"\n"),
		one("cmd/kvpiped/main.go", "package main\nimport _ \""+module+"/daemon\"\n"),
		one("daemon/plan/a.go", "package plan\nimport _ \""+module+"/daemon/layout\"\n"),
	},
}

func checkImports(f *file) []violation {
	if f.test {
		return nil
	}
	var found []violation
	f.imports(func(spec *ast.ImportSpec, pkg string) {
		to, ours := strings.CutPrefix(pkg, module+"/")
		if !ours || to == f.dir() {
			return
		}
		if why := forbidden(f, to); why != "" {
			found = append(found, f.at(spec.Pos(), fmt.Sprintf("%s imports %s: %s", f.dir(), to, why)))
		}
	})
	return found
}

func forbidden(f *file, to string) string {
	for _, b := range bounds {
		if !f.in(b.from...) {
			continue
		}
		if b.never != nil && under(to, b.never) || b.never == nil && !under(to, b.may) {
			return b.why
		}
	}
	wired := to == "daemon" || under(to, []string{"daemon/driver"})
	if wired && f.dir() != "daemon" && !f.in("daemon/driver") && !f.in(constructors...) {
		return "only daemon/ constructs"
	}
	return ""
}

// doorRule keeps golang.org/x/sys/unix behind one door.
var doorRule = rule{
	name: "sys",
	check: func(tr tree) []violation {
		return tr.eachGo(func(f *file) []violation {
			var found []violation
			f.imports(func(spec *ast.ImportSpec, pkg string) {
				if pkg == "golang.org/x/sys/unix" && !f.test && !f.in("internal/sys") {
					found = append(found, f.at(spec.Pos(), "imports x/sys/unix: use internal/sys, the only door to the kernel"))
				}
			})
			return found
		})
	},
	bad: []map[string]string{
		one("daemon/memory/a.go", "package memory\nimport \"golang.org/x/sys/unix\"\nvar _ = unix.Mmap\n"),
	},
	good: []map[string]string{
		one("internal/sys/a.go", "package sys\nimport \"golang.org/x/sys/unix\"\nvar _ = unix.Mmap\n"),
	},
}

// cgoDirs are the folders that may hold cgo.
var cgoDirs = []string{"ibverbs", "nccl", "discovery/gpu", "capi"}

var cgoRule = rule{
	name: "cgo",
	check: func(tr tree) []violation {
		return tr.eachGo(func(f *file) []violation {
			if f.imported("C") && !f.in(cgoDirs...) {
				return []violation{{path: f.path, text: "cgo lives in " + strings.Join(cgoDirs, ", ") + " alone"}}
			}
			return nil
		})
	},
	bad: []map[string]string{
		one("daemon/ring/a.go", "package ring\nimport \"C\"\n"),
		one("ibverbsx/a.go", "package ibverbsx\nimport \"C\"\n"),
	},
	good: []map[string]string{one("capi/internal/abicheck/a.go", "package abicheck\nimport \"C\"\n")},
}

var unsafeRule = rule{
	name: "unsafe",
	check: func(tr tree) []violation {
		return tr.eachGo(func(f *file) []violation {
			// A cgo binding has to hold C pointers in every file.
			named := strings.HasSuffix(strings.TrimSuffix(f.path, "_test.go"), "_unsafe") ||
				strings.HasSuffix(f.path, "_unsafe.go")
			if !f.imported("unsafe") || named || f.imported("C") {
				return nil
			}
			return []violation{{path: f.path, text: "unsafe lives in *_unsafe.go alone, so that it can be reviewed as one"}}
		})
	},
	bad: []map[string]string{
		one("daemon/ring/ring.go", "package ring\nimport \"unsafe\"\nvar _ unsafe.Pointer\n"),
		one("daemon/ring/ring_test.go", "package ring\nimport \"unsafe\"\nvar _ unsafe.Pointer\n"),
	},
	good: []map[string]string{
		one("daemon/ring/ring_unsafe.go", "package ring\nimport \"unsafe\"\nvar _ unsafe.Pointer\n"),
		one("daemon/ring/ring_unsafe_test.go", "package ring\nimport \"unsafe\"\nvar _ unsafe.Pointer\n"),
	},
}

// effects are standard and foreign packages by which a pure package would reach
// outside itself, or start something that runs beside it.
var effects = []string{
	"bufio", "context", "crypto/rand", "io", "log", "math/rand", "net", "os", "runtime", "sync",
	"syscall", "golang.org/x/sys", "golang.org/x/sync", "google.golang.org",
}

func reaches(pkg string) bool {
	return slices.ContainsFunc(effects, func(e string) bool { return pkg == e || strings.HasPrefix(pkg, e+"/") })
}
