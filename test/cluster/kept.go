package cluster

import (
	"fmt"
	"os"
	"strings"
)

// kept is what the kernel keeps for a process.
type kept struct {
	files    int // descriptors of all else than tcp
	tcp      int // descriptors of TCP's sockets
	mappings int // of memfds
}

// keeps counts it. What comes or goes meanwhile is counted or not.
func keeps(pid int) (k kept, err error) {
	tcp := map[string]bool{} // links as in fd
	for _, table := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil && !os.IsNotExist(err) { // without IPv6 there is no tcp6
			return k, err
		}
		for line := range strings.Lines(string(b)) {
			if fields := strings.Fields(line); len(fields) > inode {
				tcp["socket:["+fields[inode]+"]"] = true
			}
		}
	}
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	files, err := os.ReadDir(dir)
	if err != nil {
		return k, err
	}
	for _, f := range files {
		switch to, err := os.Readlink(dir + f.Name()); {
		case err != nil: // closed meanwhile
		case tcp[to]:
			k.tcp++
		default:
			k.files++
		}
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	k.mappings = strings.Count(string(maps), "memfd:")
	return k, err
}

// inode is the column of a socket's number in /proc/net/tcp.
const inode = 9
