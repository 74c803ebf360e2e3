package daemon

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
)

// TestServersOutlastALackOfMemory: who comes to the metrics port or the admin socket while none is to be had is served when there is some.
func TestServersOutlastALackOfMemory(t *testing.T) {
	_, open := made(t)
	d, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.release() }()
	d.adminSocket.Listener = &sessiontest.Short{Listener: d.adminSocket.Listener, Call: "accept4", Lack: syscall.ENOMEM}
	d.web.Listener = &sessiontest.Short{Listener: d.web.Listener, Call: "accept4", Lack: syscall.ENOMEM}
	ended := make(chan error, 2)
	go func() { ended <- d.serveAdmin() }()
	go func() { ended <- d.serveMetrics() }()

	if err := admin.NewClient(d.cfg.Admin).Get(t.Context(), "openapi.json", nil, &struct{}{}); err != nil {
		t.Errorf("admin: %v", err)
	}
	conn, err := net.Dial("tcp", d.web.Addr().String())
	if err == nil {
		_, err = conn.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
	}
	if err == nil {
		_, err = conn.Read(make([]byte, 64))
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		t.Errorf("metrics: %v", err)
	}
	d.closeListeners()
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Errorf("a server ended: %v", err)
		}
	}
}
