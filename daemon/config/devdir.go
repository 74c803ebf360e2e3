package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// Tmp is where anybody may make a directory. Tests have one of their own.
var Tmp = "/tmp"

// DevDir returns where "kvpiped --dev" puts its sockets and its CA: $XDG_RUNTIME_DIR/kvpipe, else /tmp/kvpipe-UID.
// libkvpipe and kvpipectl look there, too. It need not exist.
func DevDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "kvpipe")
	}
	return tmpDir()
}

func tmpDir() string { return filepath.Join(Tmp, fmt.Sprintf("kvpipe-%d", os.Geteuid())) }

// inTmpDir says whether the path leads into it, however it is spelled.
func inTmpDir(path string) bool {
	plain, err := filepath.Abs(path)
	return err == nil && strings.HasPrefix(plain, tmpDir()+"/")
}

// CheckPlace returns why nobody is to be spoken to at this socket, whoever named it: it lies below /tmp/kvpipe-UID,
// which anybody could have made, and which is not this user's alone. capi/path.c has the same rule.
func CheckPlace(path string) error {
	if !inTmpDir(path) {
		return nil
	}
	if err := sys.CheckPrivateDir(tmpDir()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// CheckListener returns why whoever listens at path is not to be spoken to: it is another user, who began to listen
// before the directory was this user's.
func CheckListener(path string, conn *net.UnixConn) error {
	if !inTmpDir(path) {
		return nil
	}
	cred, err := sys.PeerCred(conn)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if int(cred.UID) != os.Geteuid() {
		return fmt.Errorf("%s: uid %d listens there, must be uid %d", path, cred.UID, os.Geteuid())
	}
	return nil
}

// Dial connects to a unix socket of that network, if CheckPlace and CheckListener allow it. strange is why they do not.
func Dial(ctx context.Context, network, path string) (conn *net.UnixConn, strange, err error) {
	if strange = CheckPlace(path); strange != nil {
		return nil, strange, nil
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, path)
	if err != nil {
		return nil, nil, err
	}
	conn = c.(*net.UnixConn)
	if strange = CheckListener(path, conn); strange != nil {
		_ = conn.Close()
		return nil, strange, nil
	}
	return conn, nil, nil
}
