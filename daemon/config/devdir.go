package config

import (
	"fmt"
	"os"
	"path/filepath"
)

// DevDir is where "kvpiped --dev" puts its sockets and its CA: $XDG_RUNTIME_DIR/kvpipe, else /tmp/kvpipe-UID. libkvpipe and
// kvpipectl look there too. It need not exist.
func DevDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "kvpipe")
	}
	return filepath.Join("/tmp", fmt.Sprintf("kvpipe-%d", os.Geteuid()))
}
