package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
	"github.com/kvpipe/kvpipe/test/fakenvml"
)

// bin is where the programs are.
var bin string

func TestMain(m *testing.M) { leak.Main(fakenvml.Built(programs{m})) }

// programs sees to it that there are some before the tests run.
type programs struct{ leak.Runner }

func (p programs) Run() int {
	if bin = os.Getenv("KVPIPE_BIN"); bin != "" {
		if _, err := os.Stat(filepath.Join(bin, "kvpiped")); err == nil {
			return p.Runner.Run()
		}
	}
	dir, err := os.MkdirTemp("", "kvbin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir, "github.com/kvpipe/kvpipe/cmd/kvpiped", "github.com/kvpipe/kvpipe/cmd/kvpipectl")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
		return 1
	}
	bin = dir
	return p.Runner.Run()
}
