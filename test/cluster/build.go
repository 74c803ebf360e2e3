package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/kvpipe/kvpipe/internal/leak"
)

// kvpiped is the daemon's path.
var kvpiped string

// Built is m for a package that uses clusters: before its tests run it sees to it that there is a kvpiped, of $KVPIPE_BIN or
// built now.
func Built(m leak.Runner) leak.Runner { return built{m} }

type built struct{ leak.Runner }

func (b built) Run() int {
	if bin := os.Getenv("KVPIPE_BIN"); bin != "" {
		kvpiped = filepath.Join(bin, "kvpiped")
		if _, err := os.Stat(kvpiped); err == nil {
			return b.Runner.Run()
		}
	}
	dir, err := os.MkdirTemp("", "kvbin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	kvpiped = filepath.Join(dir, "kvpiped")
	build := exec.Command("go", "build", "-o", kvpiped, "github.com/kvpipe/kvpipe/cmd/kvpiped")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
		return 1
	}
	return b.Runner.Run()
}
