package versions

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
	"github.com/kvpipe/kvpipe/test/cluster"
)

// next is where the daemon and the library of the next version are.
var next string

func TestMain(m *testing.M) { leak.Main(ahead{cluster.Built(m)}) }

// ahead builds the next version before the tests run.
type ahead struct{ leak.Runner }

func (a ahead) Run() int {
	var err error
	if next, err = os.MkdirTemp("", "kvnext"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(next) }()
	const version = "github.com/kvpipe/kvpipe/internal/version"
	for _, c := range []*exec.Cmd{
		exec.Command("go", "build", "-ldflags", "-X "+version+".version=next -X "+version+".rings=1-2 -X "+version+".peers=1-2",
			"-o", filepath.Join(next, "kvpiped"), "github.com/kvpipe/kvpipe/cmd/kvpiped"),
		exec.Command("make", "-C", "../..", "-j2", "BUILD="+next, "CFLAGS=-O2 -DKVPIPE_ABI=2u -DKVPIPE_ABI_MIN=1u", next+"/lib/libkvpipe.so.0"),
	} {
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "MAKEFLAGS=", "MAKELEVEL=")
		if out, err := c.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
			return 1
		}
	}
	return a.Runner.Run()
}
