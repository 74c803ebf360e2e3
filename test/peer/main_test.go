package peer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

// daemonBinary is kvpiped's path.
var daemonBinary string

func TestMain(m *testing.M) { leak.Main(built{m}) }

// built sees to it that there is a kvpiped before the tests run.
type built struct{ leak.Runner }

func (b built) Run() int {
	daemonBinary = filepath.Join(os.Getenv("KVPIPE_BIN"), "kvpiped")
	if os.Getenv("KVPIPE_BIN") != "" {
		if _, err := os.Stat(daemonBinary); err == nil {
			return b.Runner.Run()
		}
	}
	dir, err := os.MkdirTemp("", "kvbin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	daemonBinary = filepath.Join(dir, "kvpiped")
	build := exec.Command("go", "build", "-o", daemonBinary, "github.com/kvpipe/kvpipe/cmd/kvpiped")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
		return 1
	}
	return b.Runner.Run()
}
