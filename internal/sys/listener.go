package sys

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// TCPListener names the process of this host that listens at the TCP port, as "NAME (PID n)". It reads root, which is /proc elsewhere
// than in tests. The error says why it is not known: nobody listens there (any more), or the process is another user's, whose
// descriptors only root sees.
func TCPListener(root string, port int) (string, error) {
	inodes := map[string]bool{}
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		listening(filepath.Join(root, table), port, inodes)
	}
	if len(inodes) == 0 {
		return "", fmt.Errorf("nobody listens at port %d any more", port)
	}
	all, _ := filepath.Glob(filepath.Join(root, "[0-9]*", "fd", "[0-9]*"))
	for _, fd := range all {
		target, err := os.Readlink(fd)
		if err != nil {
			continue
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok && inodes[strings.TrimSuffix(inode, "]")] {
			process := filepath.Dir(filepath.Dir(fd))
			name, _ := os.ReadFile(filepath.Join(process, "comm"))
			return fmt.Sprintf("%s (PID %s)", strings.TrimSpace(string(name)), filepath.Base(process)), nil
		}
	}
	return "", fmt.Errorf("its descriptors can't be seen from here: \"ss -ltnp sport = :%d\" as root tells", port)
}

// listening notes the inodes of sockets in state LISTEN at the port, from a table as proc(5) has it.
func listening(table string, port int, inodes map[string]bool) {
	f, err := os.Open(table)
	if err != nil {
		return // no IPv6, say
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		const local, state, inode, listen = 1, 3, 9, "0A"
		col := strings.Fields(lines.Text())
		if len(col) <= inode || col[state] != listen {
			continue
		}
		_, hex, _ := strings.Cut(col[local], ":")
		if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
			inodes[col[inode]] = true
		}
	}
}
