package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// connection tries the engines' socket as libkvpipe does. It returns the daemon's pid, or 0 if that is not visible.
func (d *doctor) connection() ([]finding, int) {
	const check = "socket"
	conn, strange, err := dialEngines(d.socket)
	switch {
	case strange != nil:
		return []finding{problem(check, "remove it, or name another socket than "+d.socket+" (KVPIPE_SOCKET)", "%v", strange)}, 0
	case err == nil:
		defer func() { _ = conn.Close() }()
		cred, err := sys.PeerCred(conn)
		if err != nil || cred.PID == 0 {
			return []finding{warn(check, "let engines and daemon share the host's pid namespace (hostPID: true), or accept it: a dead engine is then noticed by its socket",
				"%s answers, but the daemon's process is not visible from here", d.socket)}, 0
		}
		return []finding{fine(check, "%s answers (pid %d, uid %d)", d.socket, cred.PID, cred.UID)}, cred.PID
	case errors.Is(err, fs.ErrNotExist):
		return []finding{d.noSocket()}, 0
	case errors.Is(err, fs.ErrPermission):
		return []finding{d.noPermission()}, 0
	case errors.Is(err, syscall.ECONNREFUSED):
		return []finding{d.nobody()}, 0
	case errors.Is(err, syscall.EPROTOTYPE):
		return []finding{problem(check, "name the socket of engines, not the admin socket (--socket, KVPIPE_SOCKET)", "%s is a socket of another kind", d.socket)}, 0
	}
	return []finding{problem(check, "name another one with --socket or KVPIPE_SOCKET", "%s: %v", d.socket, err)}, 0
}

// dialEngines connects as libkvpipe does. strange says why libkvpipe would not talk to whoever is there.
func dialEngines(path string) (conn *net.UnixConn, strange, err error) {
	return config.Dial(context.Background(), "unixpacket", path)
}

func (d *doctor) noSocket() finding {
	dir := filepath.Dir(d.socket)
	if _, err := os.Stat(dir); err != nil {
		return problem("socket", fmt.Sprintf("start the daemon: systemctl start kvpiped, or kvpiped --dev; in a container, mount %s from the node", dir), "%s does not exist", dir)
	}
	return problem("socket", "start the daemon: systemctl start kvpiped, or kvpiped --dev; or set KVPIPE_SOCKET to where it listens", "%s does not exist", d.socket)
}

// nobody is for what refuses to be connected to: perhaps it is no socket.
func (d *doctor) nobody() finding {
	switch st, err := os.Stat(d.socket); {
	case err != nil || st.Mode()&fs.ModeSocket != 0: // a socket without a file cannot be looked at
		return problem("socket", "start the daemon: systemctl start kvpiped, or kvpiped --dev; in a container, mount the socket's directory, not the socket, so that a new daemon's socket is seen",
			"%s is there, but nobody listens on it", d.socket)
	case st.IsDir():
		return problem("socket", "name the socket in it: "+filepath.Join(d.socket, "kvpiped.sock"), "%s is no socket, but a directory", d.socket)
	}
	return problem("socket", "name the socket of engines (--socket, KVPIPE_SOCKET)", "%s is no socket", d.socket)
}

func (d *doctor) noPermission() finding {
	path := d.socket
	st, err := os.Stat(path)
	if err != nil { // even its directory is out of reach
		path = filepath.Dir(path)
		st, err = os.Stat(path)
	}
	if err != nil {
		return problem("socket", "ask for access to "+filepath.Dir(path), "%s: permission denied", d.socket)
	}
	owner, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return problem("socket", "ask for access to "+path, "%s: permission denied", d.socket)
	}
	open := fs.FileMode(0o020) // connecting takes write permission, passing a directory execute permission
	if st.IsDir() {
		open = 0o010
	}
	if st.Mode()&open == 0 {
		name := strconv.Itoa(int(owner.Uid))
		if u, err := user.LookupId(name); err == nil {
			name = u.Username
		}
		return problem("socket", fmt.Sprintf("run the engine as user %s, or start a daemon for its user (kvpiped --dev), or one for a group (group in kvpiped.toml)", name),
			"permission denied: %s is for user %s alone, mode %04o", path, name, st.Mode().Perm())
	}
	gid := strconv.Itoa(int(owner.Gid))
	group := gid
	if g, err := user.LookupGroupId(gid); err == nil {
		group = g.Name
	}
	fix := "set group in kvpiped.toml to one that the engine's user is a member of, and restart kvpiped"
	if owner.Gid != 0 { // nobody should join root's group for a socket
		fix = fmt.Sprintf("run the engine as a member of group %s (usermod -aG %s USER, then log in anew; in Kubernetes supplementalGroups: [%s]), or %s", group, group, gid, fix)
	}
	return problem("socket", fix,
		"permission denied: %s is for members of group %s alone, mode %04o", path, group, st.Mode().Perm())
}

// sessionFiles is how many of the daemon's descriptors a session takes: its connection, two eventfds and a pidfd. Its
// rings and regions are mapped, and take none.
const sessionFiles = 4

// enoughFiles is enough for as many sessions as a daemon takes by default (limits.sessions), and for as many files of
// its own and for its peers.
var enoughFiles = 2 * sessionFiles * uint64(config.Default().Limits.Sessions)

func (d *doctor) limits(pid int) []finding {
	const check = "limits"
	if pid == 0 {
		return []finding{warn(check, "run doctor where the daemon's process is visible", "the daemon's limits cannot be read: its process is not visible from here")}
	}
	file := filepath.Join(d.root, "proc", strconv.Itoa(pid), "limits")
	b, err := os.ReadFile(file)
	if err != nil {
		return []finding{warn(check, "run doctor as root or as the daemon's user", "the daemon's limits cannot be read: %v", err)}
	}
	soft, ok := openFiles(string(b))
	if !ok {
		return []finding{warn(check, "report it with the file's content", "%s has no line of open files", file)}
	}
	var found []finding
	if soft < enoughFiles {
		found = append(found, warn(check, "LimitNOFILE=65536 in the unit, or ulimit -n 65536 before kvpiped --dev", "the daemon may open %d files: each session takes %d, each peer one and one for each data link", soft, sessionFiles))
	} else {
		found = append(found, fine(check, "the daemon may open %d files", soft))
	}
	if n, err := readNumber(filepath.Join(d.root, "proc/sys/vm/max_map_count")); err == nil && n < 65530 {
		found = append(found, warn(check, "sysctl -w vm.max_map_count=65530", "vm.max_map_count is %d: each region takes a mapping in the daemon", n))
	}
	return found
}

// openFiles reads the soft limit from /proc/PID/limits.
func openFiles(limits string) (uint64, bool) {
	for line := range strings.Lines(limits) {
		rest, ok := strings.CutPrefix(line, "Max open files")
		if f := strings.Fields(rest); ok && len(f) > 0 {
			n, err := strconv.ParseUint(f[0], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

func readNumber(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}

// hugePages says what kvpipe_mem_alloc and adopted memory will get: reserved huge pages, transparent ones, or small ones.
func (d *doctor) hugePages() []finding {
	const check = "huge pages"
	const fix = "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, or reserve some: sysctl -w vm.nr_hugepages=N"
	free, err := readNumber(filepath.Join(d.root, "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"))
	if err == nil && free > 0 {
		return []finding{fine(check, "%d reserved pages of 2 MiB are free", free)}
	}
	b, err := os.ReadFile(filepath.Join(d.root, "sys/kernel/mm/transparent_hugepage/shmem_enabled"))
	if err != nil {
		return []finding{warn(check, "use a kernel with transparent huge pages, or reserve some: sysctl -w vm.nr_hugepages=N", "there are none: shared memory lies in small pages, copies are slower")}
	}
	_, mode, _ := strings.Cut(string(b), "[")
	mode, _, _ = strings.Cut(mode, "]")
	switch mode {
	case "always", "advise", "within_size", "force":
		return []finding{fine(check, "shared memory may use transparent ones (shmem_enabled is %s)", mode)}
	}
	return []finding{warn(check, fix, "none reserved are free and shmem_enabled is %q: shared memory lies in small pages, copies are slower", mode)}
}
