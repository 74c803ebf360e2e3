package policy

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

const module = "github.com/kvpipe/kvpipe"

// A tree is every text file of the repository that a person wrote.
type tree []*file

// A file is one of them; the Go parts are set for Go files.
type file struct {
	path string // slash-separated, from the repository's root
	text []byte
	test bool // lies in a _test.go file

	fset *token.FileSet
	ast  *ast.File
}

// load reads the tree, leaving out what is built or generated.
func load(root fs.FS) (tree, error) {
	var tr tree
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && left(name):
			return fs.SkipDir
		case entry.IsDir() || !entry.Type().IsRegular() || binary(name) || name == ".git": // which is a file in a worktree of git's, and names folders
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return nil
		}
		f, err := newFile(name, text)
		if err != nil {
			return err
		}
		if f.ast == nil || !ast.IsGenerated(f.ast) {
			tr = append(tr, f)
		}
		return nil
	})
	return tr, err
}

// left tells folders that hold nothing written by hand.
func left(dir string) bool {
	switch base := path.Base(dir); base {
	case ".git", "build", "__pycache__", "node_modules":
		return true
	default:
		return strings.HasSuffix(base, ".egg-info") || base == ".venv" || strings.HasSuffix(base, "_cache")
	}
}

func binary(name string) bool {
	switch path.Ext(name) {
	case ".o", ".a", ".so", ".test", ".prof", ".png", ".gz":
		return true
	}
	return name == "go.sum"
}

func newFile(name string, text []byte) (*file, error) {
	f := &file{path: name, text: text, test: strings.HasSuffix(name, "_test.go")}
	if path.Ext(name) != ".go" || strings.Contains(name, "testdata/") {
		return f, nil
	}
	f.fset = token.NewFileSet()
	var err error
	f.ast, err = parser.ParseFile(f.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return f, err
}

// dir is the file's package folder: "." at the root.
func (f *file) dir() string { return path.Dir(f.path) }

// in tells whether the file's package is one of dirs or lies below one.
func (f *file) in(dirs ...string) bool { return under(f.dir(), dirs) }

func under(dir string, dirs []string) bool {
	for _, d := range dirs {
		if dir == d || strings.HasPrefix(dir, d+"/") {
			return true
		}
	}
	return false
}

func (f *file) at(pos token.Pos, text string) violation {
	return violation{path: f.path, line: f.fset.Position(pos).Line, text: text}
}

// eachGo runs check over the Go files of the tree.
func (tr tree) eachGo(check func(*file) []violation) []violation {
	var all []violation
	for _, f := range tr {
		if f.ast != nil {
			all = append(all, check(f)...)
		}
	}
	return all
}

// imports calls visit with each import path of the file.
func (f *file) imports(visit func(spec *ast.ImportSpec, pkg string)) {
	for _, spec := range f.ast.Imports {
		if pkg, err := strconv.Unquote(spec.Path.Value); err == nil {
			visit(spec, pkg)
		}
	}
}

// imported tells whether the file imports pkg.
func (f *file) imported(pkg string) bool {
	found := false
	f.imports(func(_ *ast.ImportSpec, p string) { found = found || p == pkg })
	return found
}

// calls calls visit with each use of name.sel in the file, as in time.Now.
func (f *file) selectors(visit func(pos token.Pos, name, sel string)) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := s.X.(*ast.Ident); ok {
				visit(s.Pos(), id.Name, s.Sel.Name)
			}
		}
		return true
	})
}
