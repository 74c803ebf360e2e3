package peer

import (
	"crypto/x509"
	"fmt"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// judge closes channels whose peers' certificates the present CAs do not vouch for. Without it, a peer whose CA was
// removed would keep its channel for as long as it is used, since only handshakes check. An expired certificate ends no
// channel; expiry is reported in time. Heartbeats wake the judge, so nothing wakes up where there is no channel. They
// do not check by themselves, because a file system may keep its readers waiting. Only some do, because waking a
// goroutine and looking at three files is much of what an idle daemon costs.
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

// judgeGap is about how long the judge rests.
const judgeGap = 5 * time.Second

// callJudge has all channels judged soon, unless they were judged a moment ago.
func (m *Manager) callJudge() {
	now, last := m.clock(), m.judged.Load()
	if now-last < int64(judgeGap-m.cfg.Heartbeat/2) || !m.judged.CompareAndSwap(last, now) {
		return
	}
	select {
	case m.suspect <- struct{}{}:
	default:
	}
}

// vouched judges the peer by roots, unless it was judged by them before.
func (c *channel) vouched(roots *x509.CertPool) error {
	secured, ok := c.conn.(*corked)
	if !ok || roots == nil || roots == c.roots {
		return nil
	}
	c.roots = roots
	return pki.StillSigned(secured.ConnectionState().PeerCertificates, roots, c.since)
}
