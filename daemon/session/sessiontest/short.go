package sessiontest

import (
	"net"
	"os"
)

// Short is a listener that lacks something for its first Accept. For one goroutine.
type Short struct {
	net.Listener
	Call string // the kernel's call that fails
	Lack error

	failed bool
}

// Accept fails the first time.
func (s *Short) Accept() (net.Conn, error) {
	if !s.failed {
		s.failed = true
		return nil, &net.OpError{Op: "accept", Net: s.Addr().Network(), Err: os.NewSyscallError(s.Call, s.Lack)}
	}
	return s.Listener.Accept()
}
