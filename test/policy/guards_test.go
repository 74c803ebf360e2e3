package policy

import "go/ast"

// guarded are the packages that may name the switches by which the transfer machine leaves out its guards: itself, and the simulator below it,
// which has to notice.
var guarded = []string{"daemon/transfer"}

// guardRule keeps anybody else from naming them, so that no daemon runs without a guard.
var guardRule = rule{
	name: "guards",
	check: func(tr tree) []violation {
		return tr.eachGo(func(f *file) []violation {
			var found []violation
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && id.Name == "Broken" && !f.in(guarded...) {
					found = append(found, f.at(id.Pos(), "names Broken: guards are left out in the simulator's tests alone"))
				}
				return true
			})
			return found
		})
	},
	bad: []map[string]string{
		one("daemon/a.go", "package daemon\nvar _ = transfer.Config{Broken: which}\n"),
		one("daemon/a.go", "package daemon\nfunc f(c *transfer.Config) { c.Broken.Stranger = true }\n"),
		one("daemon/driver/a_test.go", "package driver\nvar _ transfer.Broken\n"),
	},
	good: []map[string]string{
		one("daemon/transfer/a.go", "package transfer\nfunc f(m *Machine) bool { return m.cfg.Broken.Lease }\n"),
		one("daemon/transfer/sim/a_test.go", "package sim\nvar _ = transfer.Broken{Lease: true}\n"),
		one("daemon/a.go", "package daemon\nvar errBroken error // Broken\n"),
	},
}
