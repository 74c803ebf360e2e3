package peer

import (
	"context"
	"net"
	"net/netip"

	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// secure wraps a connection in TLS, in one of the two roles, and says which node is at the other end ("" when
// insecure).
func (m *Manager) secure(ctx context.Context, conn net.Conn, client bool, protos ...string) (net.Conn, string, error) {
	if m.cfg.Insecure {
		return conn, "", nil
	}
	if m.cfg.Identity == nil {
		return nil, "", final(transfer.Unavailable, "this daemon has no certificate to show to peers: set tls.ca, tls.cert and tls.key, and restart it: a reload does not take them over")
	}
	if err := m.cfg.Identity.Ready(); err != nil {
		if !client {
			_, _ = conn.Write(fatal(alertInternalError)) // instead of only hanging up
		}
		return nil, "", final(transfer.Unavailable, "this daemon has no certificate to show to peers: %v", err)
	}
	if err := m.cfg.Identity.Valid(); client && err != nil { // the accepting side leaves it to the peer to refuse the certificate
		return nil, "", final(transfer.Unavailable, "this daemon's certificate is refused by peers: %v", err)
	}
	t := newCorked(conn, client, m.cfg.Identity.Config(protos...))
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, "", tlsError("TLS handshake", err)
	}
	node, err := pki.PeerNode(t.ConnectionState())
	if err != nil {
		return nil, "", final(transfer.Denied, "%v", err)
	}
	return t, node, nil
}

// hostOf returns an address without its port.
func hostOf(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return t.AddrPort().Addr().Unmap()
}
