package topology

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/discovery/internal/fixture"
	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// update writes the golden files: go test ./discovery/topology -update
var update = flag.Bool("update", false, "write the golden files")

// machines are the fixtures.
func machines(t *testing.T) (names []string) {
	t.Helper()
	all, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(all) == 0 {
		t.Fatalf("fixtures: %v, %v", all, err)
	}
	for _, f := range all {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".txtar"))
	}
	return names
}

// machine unpacks a fixture. Its devices.json says what other parts of discovery would have found.
func machine(t *testing.T, name string) (root string, gpus []GPU, nics []NIC) {
	t.Helper()
	root = fixture.Open(t, filepath.Join("testdata", name+".txtar"))
	b, err := os.ReadFile(filepath.Join(root, "devices.json"))
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		GPUs []GPU
		NICs []NIC
	}
	if err := json.Unmarshal(b, &found); err != nil {
		t.Fatal(err)
	}
	return root, found.GPUs, found.NICs
}

// golden compares with a file in testdata.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; make it with -update", err)
	}
	if string(want) != string(got) {
		t.Errorf("%s differs (-update writes it anew):\n%s", path, got)
	}
}
