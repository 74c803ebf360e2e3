package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// DevDir is where "kvpiped --dev" puts its sockets and its CA: $XDG_RUNTIME_DIR/kvpipe, else /tmp/kvpipe-UID. libkvpipe and
// kvpipectl look there too. It need not exist.
func DevDir() string {
	dir, _ := devDir("/tmp")
	return dir
}

// FindDevDir is DevDir for who looks for a daemon there. An error: it is in /tmp, where anybody could have made it, and is not this user's alone.
func FindDevDir() (string, error) { return findDevDir("/tmp") }

// devDir: anybodys says that it is in tmp.
func devDir(tmp string) (dir string, anybodys bool) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "kvpipe"), false
	}
	return filepath.Join(tmp, fmt.Sprintf("kvpipe-%d", os.Geteuid())), true
}

func findDevDir(tmp string) (string, error) {
	dir, anybodys := devDir(tmp)
	if !anybodys {
		return dir, nil
	}
	if err := sys.CheckPrivateDir(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	return dir, nil
}
