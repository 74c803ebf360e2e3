package sys

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// TestFreeBind listens at addresses of no machine (RFC 5737, RFC 3849).
func TestFreeBind(t *testing.T) {
	for _, addr := range []string{"192.0.2.1:0", "[2001:db8::1]:0"} {
		if l, err := net.Listen("tcp", addr); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("%s without it: %v, %v", addr, l, err)
		}
		free := net.ListenConfig{Control: FreeBind}
		l, err := free.Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		noErr(t, l.Close())
	}
}
