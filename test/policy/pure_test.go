package policy

import (
	"go/ast"
	"go/token"
	"slices"
)

// clocks are the names in package time by which code learns the time or waits.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}

// pureRule keeps clock, I/O, locks and goroutines out of the pure packages: time
// comes in as an event, work goes out as an effect, and a failing seed replays.
var pureRule = rule{
	name:  "pure",
	check: func(tr tree) []violation { return tr.eachGo(checkPure) },
	bad: []map[string]string{
		one("daemon/transfer/a.go", "package transfer\nimport \"time\"\nvar _ = time.Now\n"),
		one("daemon/transfer/a.go", "package transfer\nimport t \"time\"\nvar _ = t.Since\n"),
		one("daemon/transfer/a.go", "package transfer\nfunc f() { go f() }\n"),
		one("daemon/transfer/a.go", "package transfer\nfunc f(c chan int) { c <- 1 }\n"),
		one("daemon/layout/a.go", "package layout\nimport _ \"sync\"\n"),
		one("daemon/plan/a.go", "package plan\nimport _ \"os\"\n"),
		one("daemon/match/a.go", "package match\nimport _ \"net/netip\"\n"),
	},
	good: []map[string]string{
		one("daemon/transfer/a.go", "package transfer\nimport \"time\"\nvar _ time.Duration\n"),
		one("daemon/transfer/a_test.go", "package transfer\nimport \"time\"\nvar _ = time.Now\n"),
		one("daemon/driver/a.go", "package driver\nimport \"time\"\nfunc f() { go f(); _ = time.Now }\n"),
	},
}

func checkPure(f *file) []violation {
	if f.test || !f.in(pure...) {
		return nil
	}
	var found []violation
	object := func(pos token.Pos, text string) { found = append(found, f.at(pos, f.dir()+" is pure, but "+text)) }

	clock := ""
	f.imports(func(spec *ast.ImportSpec, pkg string) {
		if reaches(pkg) {
			object(spec.Pos(), "imports "+pkg)
		}
		if pkg == "time" {
			clock = "time"
			if spec.Name != nil {
				clock = spec.Name.Name
			}
		}
	})
	f.selectors(func(pos token.Pos, name, sel string) {
		if name == clock && slices.Contains(clocks, sel) {
			object(pos, "uses time."+sel)
		}
	})
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			object(n.Pos(), "starts a goroutine")
		case *ast.ChanType:
			object(n.Pos(), "uses a channel")
		}
		return true
	})
	return found
}
