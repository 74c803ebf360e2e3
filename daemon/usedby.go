package daemon

import (
	"net"
	"net/netip"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// usedBy says by whom an address is used, for an error message. It returns "" for what is not an address.
func usedBy(addr string) string {
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return ""
	}
	at := tcp.AddrPort()
	if !at.Addr().IsValid() { // ":7650": all addresses
		at = netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())
	}
	who, err := sys.TCPListener("/proc", at)
	if err != nil {
		return " (by whom is not known: " + err.Error() + ")"
	}
	return " by " + who
}
