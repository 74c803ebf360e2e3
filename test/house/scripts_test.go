package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoaderCheck(t *testing.T) {
	good := compile(t, "libgood.so", "int f(void) { return 1; }")
	if out, ok := script(t, "", "ldd-check.sh", filepath.Dir(good)); !ok {
		t.Errorf("a library without any need is refused:\n%s", out)
	}
	for _, none := range []string{t.TempDir(), filepath.Join(t.TempDir(), "gone")} {
		if out, ok := script(t, "", "ldd-check.sh", filepath.Dir(good), none); ok {
			t.Errorf("a folder with nothing to load passes:\n%s", out)
		}
	}
	bad := compile(t, "libbad.so", "int nowhere_to_be_found(void); int f(void) { return nowhere_to_be_found(); }")
	if out, ok := script(t, "", "ldd-check.sh", filepath.Dir(bad)); ok {
		t.Errorf("an undefined symbol passes:\n%s", out)
	}
	heavy := compile(t, "libkvpipe.so.0", "int f(void) { return 1; }", "-Wl,--no-as-needed", "-lm")
	if out, ok := script(t, "", "ldd-check.sh", filepath.Dir(heavy)); ok {
		t.Errorf("a libkvpipe that needs libm passes:\n%s", out)
	}
}

// TestLoaderCheckBehindNVML: go-nvml has programs linked so that no undefined symbol fails. NVML's own may be undefined, ours not.
func TestLoaderCheckBehindNVML(t *testing.T) {
	flags := []string{"-no-pie", "-Wl,--export-dynamic", "-Wl,--unresolved-symbols=ignore-in-object-files", "-Wl,-z,lazy"}
	const theirs = "int nvmlInit_v2(void); int main(int n, char **v) { (void)v; return n > 1 ? nvmlInit_v2() : 0; }"
	if out, ok := script(t, "", "ldd-check.sh", filepath.Dir(program(t, theirs, flags...))); !ok {
		t.Errorf("a program that waits for NVML is refused:\n%s", out)
	}
	for _, ours := range []string{"kvpipe_nowhere_to_be_found", "nvml_of_ours"} {
		source := "int " + ours + "(void);" + strings.Replace(theirs, "return n", "return n > 2 ? "+ours+"() : n", 1)
		if out, ok := script(t, "", "ldd-check.sh", filepath.Dir(program(t, source, flags...))); ok || !strings.Contains(out, ours) || strings.Contains(out, "nvmlInit_v2") {
			t.Errorf("%s is undefined, passed: %v\n%s", ours, ok, out)
		}
	}
}

func TestSymbolCheck(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "list")
	versions := filepath.Join(dir, "map")
	write(t, versions, "V_1 { global: f; g; local: *; };")
	library := compile(t, "lib.so", "int f(void) { return 1; } int g(void) { return 2; } int h(void) { return 3; }",
		"-Wl,--version-script="+versions)

	for _, c := range []struct {
		list string
		want bool
	}{
		{"f@V_1\ng@V_1\n", true},
		{"f@V_1\n", false},                 // g is new
		{"f@V_1\ng@V_1\nh@V_1\n", false},   // h is gone
		{"f@V_1\ng@V_2\n", false},          // g moved
		{"", false},                        // nothing listed
		{"f@V_1\ng@V_1\nf@V_1\n", false},   // listed twice
		{" f@V_1\n g@V_1\n", false},        // not as the check writes it
		{"g@V_1\nf@V_1\n", false},          // not sorted
		{"f@V_1\ng@V_1\nV_1@V_1\n", false}, // the version itself is no symbol
	} {
		write(t, list, c.list)
		if out, ok := script(t, "", "abi.sh", library, list); ok != c.want {
			t.Errorf("list %q: passed %v, want %v\n%s", c.list, ok, c.want, out)
		}
	}
}

func TestTypeCheck(t *testing.T) {
	const header = "struct run { unsigned group, first; };\nstruct opts { unsigned long sz; struct run *r; unsigned reserved[4]; };\n" +
		"int f(const struct opts *o, int n);\n"
	const source = "#include \"include/k.h\"\nint f(const struct opts *o, int n) { return (int)o->r->first + n; }\n"
	tool, err := filepath.Abs("../../scripts/abitypes.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir) // where the script finds the headers
	if err := os.Mkdir("include", 0o700); err != nil {
		t.Fatal(err)
	}
	check := func(header, source string) (string, bool) {
		write(t, "include/k.h", header)
		return script(t, "", tool, compile(t, "lib.so", source, "-g", "-I"+dir), filepath.Join(dir, "description"))
	}
	t.Setenv("UPDATE", "1")
	if out, ok := check(header, source); !ok {
		t.Fatal(out)
	}
	t.Setenv("UPDATE", "")
	for _, c := range []struct {
		was, is string
		want    bool
	}{
		{"", "", true},
		{"unsigned group, first", "unsigned long group, first", false}, // another size
		{"unsigned group, first", "unsigned first, group", false},      // another order
		{"unsigned group, first", "unsigned group, first, more", false},
		{"reserved[4]", "taken, reserved[3]", false},
		{"int n)", "long n)", false},
		{"int f(", "int new(void);\nint f(", true}, // abi.sh tells of names
	} {
		edit := func(s string) string { return strings.Replace(s, c.was, c.is, 1) }
		text := source
		if c.was == "int n)" {
			text = edit(source)
		}
		if out, ok := check(edit(header), text); ok != c.want {
			t.Errorf("%q instead of %q: passed %v, want %v\n%s", c.is, c.was, ok, c.want, out)
		}
	}
}

func TestGoReport(t *testing.T) {
	const passed = `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"p"}` + "\n"
	for _, c := range []struct {
		name, stream, says string
		want               bool
	}{
		{"pass", passed, "1 tests in 1 packages", true},
		{"nothing ran", "", "no package ran", false},
		{"no tests", `{"Action":"skip","Package":"p"}`, "no package ran", false},
		{"tests whose names are others", `{"Action":"output","Package":"p","Output":"testing: warning: no tests to run\n"}` + "\n" + `{"Action":"pass","Package":"p"}`, "no test ran", false},
		{"failed test", passed + `{"Action":"fail","Package":"p","Test":"TestB"}`, "TestB", false},
		{
			"time over", passed + `{"Action":"output","Package":"q","Test":"TestC","Output":"panic: test timed out\n"}` + "\n" +
				`{"Action":"fail","Package":"q"}`, "TestC did not end\npanic: test timed out", false,
		},
		{"leak after the tests", passed + `{"Action":"fail","Package":"q"}`, "fail  q", false},
		{
			"build error", passed + `{"ImportPath":"q","Action":"build-output","Output":"undefined: x\n"}` + "\n" +
				`{"ImportPath":"q","Action":"build-fail"}`, "undefined: x", false,
		},
		{
			"skip", passed + `{"Action":"output","Package":"p","Test":"TestC","Output":"    a_test.go:1: no NIC\n"}` + "\n" +
				`{"Action":"skip","Package":"p","Test":"TestC"}`, "skip: TestC: a_test.go:1: no NIC", true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, ok := script(t, c.stream, "gotest.py")
			if ok != c.want || !strings.Contains(out, c.says) {
				t.Errorf("passed %v, want %v and %q in:\n%s", ok, c.want, c.says, out)
			}
		})
	}
}

func TestOldPython(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.py"), "x = 1\n")
	if out, ok := script(t, "", "pycheck.py", "3.9", dir); !ok {
		t.Errorf("plain Python is refused:\n%s", out)
	}
	if out, ok := script(t, "", "pycheck.py", "3.9", dir, filepath.Join(dir, "gone")); ok {
		t.Errorf("a folder that is not there passes:\n%s", out)
	}
	write(t, filepath.Join(dir, "b.py"), "match 1:\n    case 1:\n        pass\n")
	if out, ok := script(t, "", "pycheck.py", "3.9", dir); ok {
		t.Errorf("Python 3.10 passes for 3.9:\n%s", out)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
