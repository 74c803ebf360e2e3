package sys

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// TestTCPListener: who listens is found, whether by IPv4 or IPv6.
func TestTCPListener(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Skipf("no listener at %s: %v", addr, err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		name, err := TCPListener("/proc", port)
		if want := fmt.Sprintf("(PID %d)", os.Getpid()); err != nil || !strings.HasSuffix(name, want) {
			t.Errorf("%s: %q, %v, want %s", addr, name, err, want)
		}
		_ = l.Close()
		if name, err = TCPListener("/proc", port); err == nil {
			t.Errorf("%s: closed, and still %s", addr, name)
		}
	}
}

// TestTCPListenerOfAnotherUser: what can't be seen is said so.
func TestTCPListenerOfAnotherUser(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(root+"/net", 0o700); err != nil {
		t.Fatal(err)
	}
	table := "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1DE2 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n"
	if err := os.WriteFile(root+"/net/tcp", []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	if name, err := TCPListener(root, 0x1DE2); err == nil || !strings.Contains(err.Error(), "can't be seen") {
		t.Errorf("%q, %v", name, err)
	}
}
