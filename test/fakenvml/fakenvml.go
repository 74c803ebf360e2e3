package fakenvml

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

// The sources, and the boxes that are known: a100, h200 (eight on NVSwitches), gb200 (a tray of an NVL72), mig (an H200 that is split
// beside one that is not), pcie (no NVLink).
var (
	//go:embed testdata
	sources embed.FS
	//go:embed scenarios
	scenarios embed.FS
)

var (
	built    string // the folder of the libraries
	errBuild = errors.New("TestMain does not call fakenvml.Built")
)

// Built is m for a package that uses the library: it is compiled before the tests and removed after them.
func Built(m leak.Runner) leak.Runner { return runner{m} }

type runner struct{ leak.Runner }

func (r runner) Run() int {
	dir, err := os.MkdirTemp("", "kvnvml")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built, errBuild = dir, build(dir)
	return r.Runner.Run()
}

// build makes libnvidia-ml.so.1 and, in old/, one of a driver of 2020.
func build(dir string) error {
	if err := os.CopyFS(dir, sources); err != nil {
		return err
	}
	header, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		return fmt.Errorf("where go-nvml is: %w", err)
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	for _, v := range []struct{ sub, define string }{{".", "NEW"}, {"old", "OLD"}} {
		library := filepath.Join(dir, v.sub, "libnvidia-ml.so.1")
		if err := os.MkdirAll(filepath.Dir(library), 0o755); err != nil {
			return err
		}
		c := exec.Command(cc, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", "-fPIC", "-shared", "-D"+v.define,
			"-I"+filepath.Join(string(bytes.TrimSpace(header)), "pkg/nvml"), "-o", library, "testdata/nvml.c", "testdata/scenario.c", "-pthread")
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%w:\n%s", err, out)
		}
	}
	return nil
}

// Library is the path of the fake.
func Library(t testing.TB) string { return library(t, "libnvidia-ml.so.1") }

// OldLibrary is one without the functions that drivers got after 2020. A process can use only one library.
func OldLibrary(t testing.TB) string { return library(t, "old/libnvidia-ml.so.1") }

func library(t testing.TB, name string) string {
	t.Helper()
	if errBuild != nil {
		t.Fatalf("the fake NVML: %v", errBuild)
	}
	return filepath.Join(built, name)
}

// Scenario is the text of a box.
func Scenario(t testing.TB, name string) string {
	t.Helper()
	b, err := scenarios.ReadFile("scenarios/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Box is what the library finds.
type Box struct {
	t    testing.TB
	file string
	text string
}

const variable = "KVPIPE_FAKE_NVML"

// New makes text what the library answers in processes that have Env, until the test ends.
func New(t testing.TB, text string) *Box {
	t.Helper()
	b := &Box{t: t, file: filepath.Join(t.TempDir(), "scenario")}
	b.Set(text)
	return b
}

// Open is New for this process and those that it starts.
func Open(t testing.TB, text string) *Box {
	t.Helper()
	b := New(t, text)
	t.Setenv(variable, b.file)
	return b
}

// Env is the variable by which a process finds the box.
func (b *Box) Env() string { return variable + "=" + b.file }

// Set replaces the whole text at once.
func (b *Box) Set(text string) {
	b.t.Helper()
	b.text = text
	if err := os.WriteFile(b.file+".new", []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(b.file+".new", b.file); err != nil {
		b.t.Fatal(err)
	}
}

// Text is what the library answers now.
func (b *Box) Text() string { return b.text }

// Say adds a line to what is said of the GPU whose UUID it is; see scenario.c for lines.
func (b *Box) Say(uuid, line string) {
	b.t.Helper()
	i := strings.Index(b.text, " "+uuid+" ")
	if i < 0 {
		b.t.Fatalf("no GPU %s in:\n%s", uuid, b.text)
	}
	end := len(b.text)
	if n := strings.Index(b.text[i:], "\ngpu "); n >= 0 {
		end = i + n + 1
	}
	b.Set(b.text[:end] + line + "\n" + b.text[end:])
}
