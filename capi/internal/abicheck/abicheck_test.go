package abicheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const (
	golden = "testdata/abi.golden"
	capi   = "../.."
)

// include is a copy of all headers: go looks at what a test opens itself, not at what a compiler does, when it takes a result of before for
// one of now.
func include(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "include")
	if err := os.CopyFS(dir, os.DirFS("../../../include")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func compiler(t *testing.T) string {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	return cc
}

func lines(t *testing.T, path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// TestGolden compares the headers with the golden file.
func TestGolden(t *testing.T) {
	got, err := describe(compiler(t), include(t), t.TempDir(), lines(t, filepath.Join(capi, "kvpipe.symbols")))
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil { //nolint:gosec // a source file
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("the headers differ from %s; a line may be added (UPDATE=1), none may change (-golden +headers):\n%s", golden, diff)
	}
}

// TestNoHoles reads the golden file: the structs that cross between processes have no padding, so no field of them is
// missing here.
func TestNoHoles(t *testing.T) {
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	sizes := regexp.MustCompile(`SIZE\((\w+), (\d+)\)\n((?:FIELD.*\n)+)`).FindAllStringSubmatch(string(text), -1)
	if len(sizes) < 30 {
		t.Fatalf("%d structs in %s, want at least 30", len(sizes), golden)
	}
	field := regexp.MustCompile(`FIELD\(\w+, (\w+), (\d+), (\d+)\)`)
	for _, s := range sizes {
		end := 0
		for _, f := range field.FindAllStringSubmatch(s[3], -1) {
			if offset := number(t, f[2]); offset != end {
				t.Errorf("struct %s: %s is at %d, what is before it ends at %d", s[1], f[1], offset, end)
			}
			end = number(t, f[2]) + number(t, f[3])
		}
		if size := number(t, s[2]); size != end {
			t.Errorf("struct %s has %d bytes, its fields end at %d", s[1], size, end)
		}
	}
}

func number(t *testing.T, s string) int {
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' {
			t.Fatalf("%q is not a number", s)
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// TestSymbols compares header, version script and symbol list. That the library exports just these is `make abi`.
func TestSymbols(t *testing.T) {
	h, err := read(filepath.Join(include(t), "kvpipe.h"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, s := range lines(t, filepath.Join(capi, "kvpipe.symbols")) {
		name, version, _ := strings.Cut(s, "@")
		if !strings.HasPrefix(version, "KVPIPE_") {
			t.Errorf("symbol %q has no version", s)
		}
		listed = append(listed, name)
	}
	var mapped []string
	for _, w := range lines(t, filepath.Join(capi, "kvpipe.map")) {
		if name, ok := strings.CutSuffix(w, ";"); ok && strings.HasPrefix(name, "kvpipe_") {
			mapped = append(mapped, name)
		}
	}
	slices.Sort(h.functions)
	slices.Sort(mapped)
	slices.Sort(listed)
	if diff := cmp.Diff(h.functions, mapped); diff != "" {
		t.Errorf("kvpipe.map differs from kvpipe.h (-header +map):\n%s", diff)
	}
	if diff := cmp.Diff(h.functions, listed); diff != "" {
		t.Errorf("kvpipe.symbols differs from kvpipe.h (-header +symbols):\n%s", diff)
	}
}

// TestRead feeds the parser what it must not misread.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.h")
	src := `#define KVPIPE_TEN 10u /* struct no { int a; }; */
#define KVPIPE_MACRO(x) (x)
#define KVPIPE_EVER INT64_MAX
enum e { KVPIPE_A = 1u << 0, /* one, two */ KVPIPE_B, };
struct s { const char *p, *q; uint8_t pad[60]; struct s t[KVPIPE_TEN]; };
KVPIPE_API const char *kvpipe_f(int a);
`
	if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := read(path)
	if err != nil {
		t.Fatal(err)
	}
	want := header{
		structs:   []structure{{"s", []string{"p", "q", "pad", "t"}}},
		constants: []string{"KVPIPE_A", "KVPIPE_B", "KVPIPE_TEN", "KVPIPE_EVER"},
		functions: []string{"kvpipe_f"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(header{}, structure{})); diff != "" {
		t.Error(diff)
	}
}

// TestCompilers compiles the headers as their users may: alone, in strict C11, in C++, with barriers in use, and with no padding left to
// the compiler in what crosses between processes.
func TestCompilers(t *testing.T) {
	headers := include(t)
	source := filepath.Join(t.TempDir(), "all.h")
	text := `#include <kvpipe/ring.h>
#include <kvpipe/barrier.h>
#include <kvpipe.h>
void move(uint32_t *to, const uint32_t *from);
void move(uint32_t *to, const uint32_t *from) { kvpipe_store_release(to, kvpipe_load_acquire(from)); kvpipe_full_barrier(); }
`
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, cxx := []string{"-x c -std=c11 -Wpadded -pedantic"}, []string{"-x c++ -std=c++11 -Wpadded", "-x c++ -std=c++20"}
	for name, modes := range map[string][]string{"gcc": c, "clang": c, "g++": cxx, "clang++": cxx} {
		t.Run(name, func(t *testing.T) {
			cc, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("no %s: %v", name, err)
			}
			for _, mode := range modes {
				args := append(strings.Fields(mode), "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", headers, source)
				if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", mode, err, out)
				}
			}
		})
	}
}
