package policy

import (
	"bytes"
	"fmt"
	"go/format"
	"path"
	"slices"
	"strings"
)

// commentRule: each package says what it owns, in the comment of one file.
var commentRule = rule{
	name:  "package comment",
	check: checkComments,
	bad: []map[string]string{
		one("daemon/ring/ring.go", "package ring\n"),
		one("daemon/ring/ring.go", "// Short.\npackage ring\n"),
		{"daemon/ring/a.go": "package ring\n", "daemon/ring/b_test.go": "// Package ring is explained in a test alone.\npackage ring\n"},
	},
	good: []map[string]string{
		one("daemon/ring/ring.go", "// Package ring owns the rings that client and daemon share.\npackage ring\n"),
		{"cmd/x/a.go": "package main\n", "cmd/x/main.go": "// Command x does what its name says.\npackage main\n"},
	},
}

func checkComments(tr tree) []violation {
	said := map[string]bool{}
	for _, f := range tr {
		if f.ast == nil || f.test {
			continue
		}
		doc := f.ast.Doc.Text()
		explained := len(strings.Fields(doc)) >= 4
		said[f.dir()] = said[f.dir()] || explained
	}
	var found []violation
	for dir, ok := range said {
		if !ok {
			found = append(found, violation{path: dir, text: "no package comment says what this package owns"})
		}
	}
	return found
}

var gofmtRule = rule{
	name: "gofmt",
	check: func(tr tree) []violation {
		return tr.eachGo(func(f *file) []violation {
			formatted, err := format.Source(f.text)
			if err != nil {
				return []violation{{path: f.path, text: err.Error()}}
			}
			if !bytes.Equal(formatted, f.text) {
				return []violation{{path: f.path, text: "not gofmt clean: make fmt"}}
			}
			return nil
		})
	},
	bad:  []map[string]string{one("a.go", "package a\nvar  x = 1\n")},
	good: []map[string]string{one("a.go", "package a\n\nvar x = 1\n")},
}

// long is the length from which a file probably holds two ideas, and longShare
// how many files in a hundred may be longer.
const (
	long      = 350
	longShare = 10
)

var lengthRule = rule{
	name:  "length",
	check: checkLength,
	bad:   []map[string]string{one("a.c", strings.Repeat("\n", long+1))},
	good:  []map[string]string{one("a.c", strings.Repeat("\n", long)), one("a.md", strings.Repeat("\n", long+1))},
}

func checkLength(tr tree) []violation {
	all, over := 0, []violation(nil)
	for _, f := range tr {
		if !slices.Contains([]string{".go", ".c", ".h", ".py", ".s", ".sh"}, path.Ext(f.path)) {
			continue
		}
		all++
		if lines := bytes.Count(f.text, []byte("\n")); lines > long {
			over = append(over, violation{path: f.path, text: fmt.Sprintf("%d lines", lines)})
		}
	}
	if len(over)*100 <= all*longShare {
		return nil
	}
	return append(over, violation{path: ".", text: fmt.Sprintf(
		"%d of %d files are longer than %d lines; nine in ten should be shorter", len(over), all, long)})
}
