package daemon

import (
	"net"
	"strconv"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// usedBy says by whom an address is used, for an error message; "" when its port is no number.
func usedBy(addr string) string {
	_, text, _ := net.SplitHostPort(addr)
	port, err := strconv.Atoi(text)
	if err != nil {
		return ""
	}
	who, err := sys.TCPListener("/proc", port)
	if err != nil {
		return " (by whom is not known: " + err.Error() + ")"
	}
	return " by " + who
}
