package sys

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// TCPListener names the process of this host that keeps others from listening
// at a TCP address, as "NAME (PID n)". root is /proc, except in tests. The
// error says why the process is not known: nobody listens there (any more), or
// it is another user's, whose descriptors only root sees.
func TCPListener(root string, at netip.AddrPort) (string, error) {
	inodes := map[string]bool{}
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port()) // all of IPv4 have two forms
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		listening(filepath.Join(root, table), at, inodes)
	}
	if len(inodes) == 0 {
		return "", fmt.Errorf("nobody listens at port %d any more", at.Port())
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
	return "", fmt.Errorf("its descriptors can't be seen from here: \"ss -ltnp sport = :%d\" as root tells", at.Port())
}

// listening notes the inodes of sockets in state LISTEN that keep others from
// listening at an address. table is a file as in proc(5).
func listening(table string, at netip.AddrPort, inodes map[string]bool) {
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
		addr, port, _ := strings.Cut(col[local], ":")
		n, err := strconv.ParseUint(port, 16, 16)
		if a := tableAddr(addr); err == nil && uint16(n) == at.Port() && (a == at.Addr().Unmap() || covers(a, at.Addr()) || covers(at.Addr(), a)) {
			inodes[col[inode]] = true
		}
	}
}

// tableAddr reads an address of the table: 32-bit words, written as this
// machine has them, whose bytes in memory are those on the wire.
func tableAddr(text string) netip.Addr {
	b, err := hex.DecodeString(text)
	if err != nil || len(b)%4 != 0 {
		return netip.Addr{}
	}
	for w := b; len(w) > 0; w = w[4:] {
		w[0], w[1], w[2], w[3] = w[3], w[2], w[1], w[0]
	}
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}

// covers reports whether a stands for all addresses of b's kind.
func covers(a, b netip.Addr) bool {
	return a == netip.IPv6Unspecified() || a == netip.IPv4Unspecified() && b.Unmap().Is4()
}
