package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvpipe/kvpipe/daemon/admin/admintest"
)

var update = flag.Bool("update", false, "write what the commands print to testdata")

// ctlRun runs kvpipectl and returns what it prints.
func ctlRun(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := execute(ctx, &out, args)
	return out.String(), err
}

func TestOutput(t *testing.T) {
	socket := admintest.Serve(t, admintest.Example())
	empty := admintest.Serve(t, &admintest.Source{})
	for name, args := range map[string]string{
		"status": "status", "peers": "peers", "sessions": "sessions", "regions": "regions", "offers": "offers", "transfers": "transfers", "pipes": "pipes", "buffers": "buffers", "gpus": "gpus", "nics": "nics",
		"topology": "topology", "explain": "explain decode-1", "bench": "bench decode-1 --seconds 0.5 --sizes 4096,1048576", "drain": "drain", "version": "version",
	} {
		for _, form := range []string{"txt", "json"} {
			t.Run(name+"."+form, func(t *testing.T) {
				line := append(strings.Fields(args), "--admin", socket)
				if form == "json" {
					if name == "drain" { // drain's seconds differ from run to run
						return
					}
					line = append(line, "--json")
				}
				got, err := ctlRun(t.Context(), line...)
				if err != nil {
					t.Fatal(err)
				}
				golden(t, name+"."+form, got)
			})
		}
	}
	t.Run("help.txt", func(t *testing.T) {
		got, err := ctlRun(t.Context(), "--help")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "help.txt", got)
	})
	for _, name := range []string{"peers", "sessions", "regions", "offers", "transfers", "pipes", "buffers", "nics"} {
		t.Run("empty "+name, func(t *testing.T) {
			got, err := ctlRun(t.Context(), name, "--admin", empty)
			if err != nil || strings.Count(got, "\n") != 1 {
				t.Errorf("nothing to list prints %q (%v), want the head alone", got, err)
			}
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: go test ./cmd/kvpipectl -update writes it", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}
