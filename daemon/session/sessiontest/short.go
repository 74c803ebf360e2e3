package sessiontest

import (
	"net"
	"os"
)

// Short is a listener that lacks something for the first connection that it is asked for. For one goroutine.
type Short struct {
	net.Listener
	Call string // of the kernel, which fails
	Lack error

	failed bool
}

// Accept fails once.
func (s *Short) Accept() (net.Conn, error) {
	if !s.failed {
		s.failed = true
		return nil, &net.OpError{Op: "accept", Net: s.Addr().Network(), Err: os.NewSyscallError(s.Call, s.Lack)}
	}
	return s.Listener.Accept()
}
