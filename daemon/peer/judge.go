package peer

import (
	"crypto/x509"
	"fmt"

	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// judge closes channels whose peers the CAs of now do not vouch for. Handshakes alone would leave them to somebody whose CA was taken out, for
// as long as they are used. A certificate that expires is shown in time, and its channel stays. Heartbeats call, so that nothing wakes up where
// there is no channel; they do not look themselves, since a file system can keep whoever asks it waiting.
func (m *Manager) judge() {
	for {
		select {
		case <-m.suspect:
		case <-m.ctx.Done():
			return
		}
		roots := m.cfg.Identity.Roots()
		for _, c := range m.all() {
			if err := c.vouched(roots); err != nil {
				c.close(transfer.Cause{Reason: transfer.Denied, Text: fmt.Sprintf("peer %q is not trusted any more: %v", c.node, err)}, true)
			}
		}
	}
}

// callJudge has all channels judged soon.
func (m *Manager) callJudge() {
	select {
	case m.suspect <- struct{}{}:
	default:
	}
}

// vouched judges the peer by CAs by which it was not judged yet.
func (c *channel) vouched(roots *x509.CertPool) error {
	secured, ok := c.conn.(*corked)
	if !ok || roots == nil || roots == c.roots {
		return nil
	}
	c.roots = roots
	return pki.StillSigned(secured.ConnectionState().PeerCertificates, roots, c.since)
}
