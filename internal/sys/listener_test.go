package sys

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// TestTCPListener: who listens is found, whether by IPv4 or IPv6, at the address or at all of them.
func TestTCPListener(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Skipf("no listener at %s: %v", addr, err)
		}
		at := l.Addr().(*net.TCPAddr).AddrPort()
		if at.Addr().IsUnspecified() { // what is wanted is less
			at = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.7"), at.Port())
		}
		name, err := TCPListener("/proc", at)
		if want := fmt.Sprintf("(PID %d)", os.Getpid()); err != nil || !strings.HasSuffix(name, want) {
			t.Errorf("%s: %q, %v, want %s", addr, name, err, want)
		}
		_ = l.Close()
		if name, err = TCPListener("/proc", at); err == nil {
			t.Errorf("%s: closed, and still %s", addr, name)
		}
	}
}

// TestTCPListenerElsewhere: who listens at the same port of another address is in nobody's way.
func TestTCPListenerElsewhere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	for addr, want := range map[string]bool{"0.0.0.0": true, "::": true, "::ffff:0.0.0.0": true, "::ffff:127.0.0.1": true, "127.0.0.7": false, "::1": false} {
		name, err := TCPListener("/proc", netip.AddrPortFrom(netip.MustParseAddr(addr), port))
		if mine := err == nil && strings.HasSuffix(name, fmt.Sprintf("(PID %d)", os.Getpid())); mine != want {
			t.Errorf("in the way of %s: %v (%q, %v), want %v", addr, mine, name, err, want)
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
	if name, err := TCPListener(root, netip.MustParseAddrPort("127.0.0.1:7650")); err == nil || !strings.Contains(err.Error(), "can't be seen") {
		t.Errorf("%q, %v", name, err)
	}
}
